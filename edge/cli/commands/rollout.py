"""`edge-deploy rollout`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.lazy import verbosity_option
from edge.cli.options import SECONDS
from edge.cli.paths import Command, Group
from edge.cli.rollout_options import (
    SHARE,
    SPAN,
    ca_option,
    channel_option,
    credential_option,
    json_option,
    known_as_option,
    login_option,
    pipeline_option,
    where_argument,
)

if TYPE_CHECKING:
    from edge.deploy.rollout.hearing import Hearing
    from edge.deploy.rollout.open import RolloutDesk
    from edge.deploy.rollout.rollout import Look
    from edge.registry.reference import Reference
    from edge.rollout.device import RolloutDevice

__all__ = ["rollout"]

_DONE, _WAITING, _STOPPED = 0, 10, 11


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-deploy rollout start registry.example/farms/gates:3f9a1c07b2de --rings canary,early,all --pipeline gates.yaml
  edge-deploy rollout watch registry.example/farms/gates --pipeline gates.yaml
  edge-deploy rollout status registry.example/farms/gates --pipeline gates.yaml
  edge-deploy rollout stop registry.example/farms/gates --why overheats""",
)
@verbosity_option
def rollout() -> None:
    """Bring a published release from ring to ring, by what its devices say.

    The next ring gets it when enough devices of the one before have committed it and held it for a time; it stops by
    itself when too many fail. What is kept of it is in the registry, so any workstation goes on with it.
    docs/rollout.md.
    """


@rollout.command(
    "start",
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy rollout start registry.example/farms/gates:3f9a1c07b2de --rings canary,early,all --pipeline gates.yaml
  edge-deploy rollout start registry.lan:5000/gates:3f9a1c07b2de --rings all --hold 10m --pipeline gates.yaml""",
)
@click.argument("where", metavar="REGISTRY/REPOSITORY:RELEASE")
@click.option("--rings", required=True, metavar="RING,RING", help="In the order in which they get it.")
@click.option("--share", type=SHARE, default="95%", show_default=True, help="Of a ring has to have committed it.")
@click.option("--hold", "hold_s", type=SPAN, default="1h", show_default=True, help="For so long, before the next.")
@click.option("--max-failed", type=SHARE, default="2%", show_default=True, help="Of a ring; beyond that it stops.")
@click.option(
    "--max-silent", type=SHARE, default="25%", show_default=True, help="Of a ring; beyond that it waits for them."
)
@click.option(
    "--lost-after",
    "lost_after_s",
    type=SPAN,
    default="30m",
    show_default=True,
    help="A device that falls silent for longer has failed.",
)
@pipeline_option
@credential_option
@ca_option
@login_option
@known_as_option
@json_option
@verbosity_option
def start(
    where: str,
    rings: str,
    share: float,
    hold_s: float,
    max_failed: float,
    max_silent: float,
    lost_after_s: float,
    path: Path,
    credential: str | None,
    ca: Path | None,
    login_path: Path | None,
    known_as: str | None,
    as_json: bool,
) -> int:
    """Give a release to the first ring. Exit code 0.

    The release has been published (edge-deploy publish), and is named as it was then.
    """
    from edge.rollout.rules import Rules

    reference = _reference(where)
    if reference.tag is None:
        raise click.BadParameter(f"{where} names no release; add :RELEASE, as publish printed it", param_hint="RELEASE")
    names = [name.strip() for name in rings.split(",")]
    if not all(re.fullmatch(r"[a-z0-9-]{1,32}", name) for name in names) or len(set(names)) != len(names):
        problem = f"expected names as in canary,early,all, each once, got {rings!r}"
        raise click.BadParameter(problem, param_hint="--rings")
    try:
        rules = Rules(
            share=share, hold_s=hold_s, max_failed=max_failed, max_silent=max_silent, lost_after_s=lost_after_s
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with _opened(reference, login_path, ca, known_as) as desk:
        release = desk.tags.release(reference.tag)
        channel = release.manifest.channel
        work = desk.rollout(channel)
        with _heard(path, credential) as hearing:
            work.start(release, names, rules, _devices(hearing, desk, channel))
            _show(work.look(_devices(hearing, desk, channel)), as_json=as_json)
    return _DONE


@rollout.command(
    "watch",
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy rollout watch registry.example/farms/gates --pipeline gates.yaml
  edge-deploy rollout watch registry.example/farms/gates --pipeline gates.yaml --every 10""",
)
@where_argument
@channel_option
@click.option("--every", "every_s", type=SECONDS, default=30, show_default=True, help="Seconds between two looks.")
@pipeline_option
@credential_option
@ca_option
@login_option
@known_as_option
@json_option
@verbosity_option
def watch(
    where: str,
    channel: str,
    every_s: float,
    path: Path,
    credential: str | None,
    ca: Path | None,
    login_path: Path | None,
    known_as: str | None,
    as_json: bool,
) -> int:
    """Go on with a rollout until it is done (0) or stopped (11). Ctrl-C only ends the watching."""
    from edge.cli.rollout_lines import ring_line
    from edge.deploy.rollout.watch import watch as go_on

    told: list[str] = []

    def on_look(look: Look) -> None:
        line = ring_line(look)
        if told[-1:] != [line]:
            told.append(line)
            _say(f"{look.at:%H:%M:%S} {line}")

    with _opened(_reference(where), login_path, ca, known_as) as desk, _heard(path, credential) as hearing:
        work = desk.rollout(channel)
        _devices(hearing, desk, channel)  # says at once where there are none
        state = go_on(
            work,
            hearing,
            repository=desk.repository,
            channel=channel,
            every_s=every_s,
            on_look=on_look,
            say=_say,
        )
        _show(work.look(_devices(hearing, desk, channel)), as_json=as_json)
    return _DONE if state.phase == "done" else _STOPPED


@rollout.command(
    "advance",
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy rollout advance registry.example/farms/gates --pipeline gates.yaml
  edge-deploy rollout advance registry.example/farms/gates --pipeline gates.yaml --anyway""",
)
@where_argument
@channel_option
@click.option("--anyway", is_flag=True, help="Give it to the next ring, whatever its devices say.")
@pipeline_option
@credential_option
@ca_option
@login_option
@known_as_option
@json_option
@verbosity_option
def advance(
    where: str,
    channel: str,
    anyway: bool,
    path: Path,
    credential: str | None,
    ca: Path | None,
    login_path: Path | None,
    known_as: str | None,
    as_json: bool,
) -> int:
    """Look once and take the step that is due; for a job that runs every few minutes.

    Exit code: 0 the next ring has it, or all have; 10 not yet; 11 it is stopped.
    """
    with _opened(_reference(where), login_path, ca, known_as) as desk, _heard(path, credential) as hearing:
        work = desk.rollout(channel)
        look = work.look(_devices(hearing, desk, channel))
        begun, was_running = len(look.state.begun), look.state.phase == "running"
        is_forced = anyway and was_running
        state = work.advance(look.state, "a person has said so") if is_forced else work.go_on(look)
        _show(work.look(_devices(hearing, desk, channel)), as_json=as_json)
    if state.phase == "stopped":
        return _STOPPED
    return _WAITING if state.phase == "running" and len(state.begun) == begun and not is_forced else _DONE


@rollout.command(
    "stop",
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy rollout stop registry.example/farms/gates
  edge-deploy rollout stop registry.example/farms/gates --why overheats""",
)
@where_argument
@channel_option
@click.option("--why", default="a person has said so", show_default=True, help="For whoever reads it later.")
@ca_option
@login_option
@verbosity_option
def stop(where: str, channel: str, why: str, ca: Path | None, login_path: Path | None) -> int:
    """Have nobody else take the release.

    The tags of its rings name again what they did before. Devices that have it keep it: edge-deploy rollback, or a
    newer release, brings them to another.
    """
    from edge.untrusted import cleaned

    with _opened(_reference(where), login_path, ca) as desk:
        work = desk.rollout(channel)
        state = work.stop(work.kept_state(), cleaned(why[:200]))
    rings = ", ".join(ring.name for ring in state.begun)
    click.echo(f"stopped: nobody else of {rings} takes release {state.release}")
    return _DONE


@rollout.command(
    "status",
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy rollout status registry.example/farms/gates --pipeline gates.yaml
  edge-deploy rollout status registry.example/farms/gates --pipeline gates.yaml --json""",
)
@where_argument
@channel_option
@pipeline_option
@credential_option
@ca_option
@login_option
@known_as_option
@json_option
@verbosity_option
def status(
    where: str,
    channel: str,
    path: Path,
    credential: str | None,
    ca: Path | None,
    login_path: Path | None,
    known_as: str | None,
    as_json: bool,
) -> int:
    """Show how a rollout stands, and change nothing. Exit code: 0; 11 if it is stopped."""
    with _opened(_reference(where), login_path, ca, known_as) as desk, _heard(path, credential) as hearing:
        look = desk.rollout(channel).look(_devices(hearing, desk, channel))
        _show(look, as_json=as_json)
    return _STOPPED if look.state.phase == "stopped" else _DONE


def _reference(where: str, *, option: str = "REGISTRY/REPOSITORY") -> Reference:
    from edge.registry.reference import parse_reference

    return parse_reference(where, where=option)


@contextmanager
def _opened(
    reference: Reference, login_path: Path | None, ca: Path | None, known_as: str | None = None
) -> Iterator[RolloutDesk]:
    from edge.deploy.rollout.open import open_rollouts
    from edge.registry.login import read_login

    login = None if login_path is None else read_login(login_path)
    known = None if known_as is None else _reference(known_as, option="--known-as")
    with open_rollouts(reference, login=login, ca=ca, known_as=known) as desk:
        yield desk


@contextmanager
def _heard(path: Path, credential: str | None) -> Iterator[Hearing]:
    """Give the words of all devices, once the broker has told all that it keeps."""
    from edge.config.credentials import read_credential
    from edge.config.load import load_pipeline
    from edge.deploy.rollout.hearing import Hearing
    from edge.deploy.rollout.watch import hear_all

    pipeline = load_pipeline(path)
    mqtt = pipeline.config.mqtt
    if mqtt is None:
        raise pipeline.error(("mqtt",), "is missing; there is no broker that devices could speak to")
    name = credential or mqtt.credential
    secret = None if name is None else read_credential(name)
    with Hearing(mqtt, credential=secret, base_dir=pipeline.path.parent, say=_say) as hearing:
        hear_all(hearing)
        yield hearing


def _devices(hearing: Hearing, desk: RolloutDesk, channel: str) -> list[RolloutDevice]:
    """Return the devices of a channel; where there are none, say from where others fetch it."""
    found = hearing.devices(desk.repository, channel)
    elsewhere = {} if found else hearing.elsewhere(desk.repository, channel)
    for name, count in sorted(elsewhere.items()):
        _say(
            f"{count} devices fetch {channel} from {name}, none from {desk.repository}; if that is the same, "
            f"add --known-as {name}"
        )
    return found


_say: Callable[[str], None] = partial(click.echo, err=True)


def _show(look: Look, *, as_json: bool) -> None:
    from edge.cli.output import echo_json
    from edge.cli.rollout_lines import look_json, look_lines

    if as_json:
        echo_json(look_json(look))
        return
    for line in look_lines(look):
        click.echo(line)
