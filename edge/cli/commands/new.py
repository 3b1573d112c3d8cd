"""`edge-deploy new`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from edge.cli.output import echo_json, echo_pairs
from edge.cli.paths import CAMERA, MODEL, READ, SECONDS, WRITTEN, command
from edge.cli.run_command import tell
from edge.config.credentials import Credential, credential_from_line
from edge.deploy.new.document import NewPipeline
from edge.deploy.new.new import AskTrust, PipelineRequest, make_pipeline
from edge.deploy.new.places import broker_from_text
from edge.errors import CertificateError

__all__ = ["new"]

_UNREACHABLE = 3
_CAMERA_LOGIN, _BROKER_LOGIN = "EDGE_CAMERA_LOGIN", "EDGE_BROKER_LOGIN"


@command("""
  edge-deploy new yolo11s.onnx rtsp://camera-east/main rtsp://camera-west/main -o gates.yaml
  edge-deploy new yolo11s.onnx clips/ v4l2:///dev/video0 --broker broker.local -o try.yaml
  EDGE_CAMERA_LOGIN=user:password edge-deploy new yolo11s.onnx rtsp://10.0.0.7/stream1 --json

\b
What it asks and writes: docs/new.md""")
@click.argument("model", type=MODEL)
@click.argument("typed", type=CAMERA, nargs=-1, required=True, metavar="CAMERA...")
@click.option(
    "-o", "--out", type=WRITTEN, default=Path("pipeline.yaml"), show_default=True, metavar="FILE", help="To be written."
)
@click.option("--broker", metavar="HOST[:PORT]", help="Over TLS; mqtt://HOST[:PORT] asks for plain text.")
@click.option("--site", metavar="NAME", help="Topic level above the device.  [default: default]")
@click.option("--ca", type=READ, metavar="FILE", help="Authorities that the broker's certificate is checked by.")
@click.option("--camera-ca", type=READ, metavar="FILE", help="Authorities for certificates of cameras (rtsps, https).")
@click.option(
    "--trust", multiple=True, metavar="FINGERPRINT", help='A camera\'s own certificate: "sha256:..."; repeat.'
)
@click.option("--credential", metavar="NAME", help='The secret "user:password" of cameras that want a login.')
@click.option(
    "--timeout", "within_s", type=SECONDS, default=10, show_default=True, metavar="S", help="For each first answer."
)
@click.option("--force", "is_forced", is_flag=True, help="Replace files and secrets that are there.")
def new(
    out: Path,
    broker: str | None,
    site: str | None,
    ca: Path | None,
    trust: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> int:
    """Write a pipeline file for cameras and a model, from what they say of themselves.

    CAMERA is an address (rtsp, rtsps, http, https, v4l2, csi), a clip, or a folder of clips. Each is looked at, and a
    picture of it is written beside the file. What cannot be reached is left in the file as a comment; the command then
    exits with 3.

    A login is asked for on the terminal, once a host; without a terminal, EDGE_CAMERA_LOGIN and EDGE_BROKER_LOGIN
    (user:password) are taken. Logins are kept as secrets, by name, and never stand in the file. Whether a camera's own
    certificate is the camera's is asked, too; --trust says it beforehand.
    """
    if broker is None and (site is not None or ca is not None):
        raise click.UsageError("--site and --ca are of the broker: add --broker HOST")
    request = PipelineRequest(
        out=out,
        broker=None if broker is None else broker_from_text(broker, site=site, ca=None if ca is None else str(ca)),
        **asked,
    )
    made = make_pipeline(
        request, ask=_asker(_CAMERA_LOGIN), ask_broker=_asker(_BROKER_LOGIN), ask_trust=_trust_asker(trust), say=tell
    )
    following = _next_commands(out, is_on_stdout=made.is_on_stdout)
    if as_json:
        echo_json({**made.as_json(), "next": following})
    else:
        echo_pairs(made.lines())
        _echo_end(made, following)
    return 0 if made.is_complete else _UNREACHABLE


def _echo_end(made: NewPipeline, following: list[str]) -> None:
    pictures = len(made.snapshots)
    click.echo(f"\n{made.out} written, and {pictures} {'picture' if pictures == 1 else 'pictures'} beside it. Next:")
    for line in following:
        click.echo(f"  {line}")


def _asker(variable: str) -> Callable[[str], Credential | None]:
    """Return what is asked for logins: the environment, else a person at the terminal, else nothing."""

    def ask(whose: str) -> Credential | None:
        line = os.environ.get(variable)
        if line is not None:
            return credential_from_line(line, where=f"${variable}")
        return _typed(whose) if _has_person() else None

    return ask


def _has_person() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _typed(whose: str) -> Credential | None:
    user: str = click.prompt(f"{whose} wants a login. User (Enter: none)", default="", show_default=False, err=True)
    if not user:
        return None
    password: str = click.prompt("Password", hide_input=True, default="", show_default=False, err=True)
    return Credential(user=user, password=password)


def _trust_asker(given: Sequence[str]) -> AskTrust:
    """Return who says whether a certificate is a camera's own: the command line, else a person at the terminal."""
    for one in given:
        if re.fullmatch(r"sha256:([0-9A-Fa-f]{2}:?){32}", one) is None:
            raise click.UsageError(f"--trust: expected sha256: and 64 hexadecimal digits, got {one!r}")
    known = {one.partition(":")[2].replace(":", "").lower() for one in given}

    def ask(whose: str, error: CertificateError) -> bool:
        if error.fingerprint.partition(":")[2] in known:
            return True
        if not _has_person():
            return False
        click.echo(f"{error.problem}. The fingerprint of what {whose} shows:\n  {error.fingerprint}", err=True)
        return click.confirm("Compare it with what the camera's own pages show. Is it the camera's?", err=True)

    return ask


def _next_commands(out: Path, *, is_on_stdout: bool) -> list[str]:
    """Return what to type next: what the machine makes of the file, then a look at it, with its messages in a file."""
    runtime, path = _beside("edge-runtime"), shlex.quote(str(out))
    look = shlex.quote(str(out.with_name(f"{out.stem}-look")))
    messages = f" > {shlex.quote(str(out.with_suffix('.jsonl')))}" if is_on_stdout else ""
    return [
        f"{runtime} doctor --pipeline {path}",
        f"{runtime} run --pipeline {path} --duration 20 --annotate {look}{messages}",
    ]


def _beside(name: str) -> str:
    """Return how a command of ours is called: by its name where that finds it, else from where we were called."""
    own = Path(sys.argv[0])
    found = shutil.which(name)
    is_ours = own.name == "edge-deploy" and not (found and Path(found).parent.samefile(own.parent))
    return shlex.quote(str(own.with_name(name))) if is_ours else name
