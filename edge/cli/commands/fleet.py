"""`edge-deploy fleet`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.output import aligned, echo_json, echo_lines, shown_width
from edge.cli.paths import command
from edge.cli.ring_options import credential_option, heard, pipeline_option
from edge.cli.run_command import tell
from edge.deadline import age_s
from edge.deploy.rings.verdict import Heard
from edge.publish.messages import DeployMessage, PullMessage

__all__ = ["fleet"]

_COLUMNS = ("device", "ring", "release", "since", "last_look", "look_age_s", "state", "failed", "why", "silent_since")
_SPARE = ("SILENT SINCE", "LAST LOOK", "LOOK AGE S", "FAILED")


@command("""
  edge-deploy fleet --pipeline gates.yaml
  edge-deploy fleet --pipeline gates.yaml --json""")
@pipeline_option
@credential_option
def fleet(path: Path | None, credential: str | None, as_json: bool) -> int:
    """Show who runs what since when, and how each device stands, by what the broker keeps of them.

    Of each: its ring, release and since when, when the registry last told it what its ring has and how long ago that
    is, what is wrong with it, the release that failed there last and why, or why it keeps what it has, and since when
    it says nothing. Times are by the devices' own clocks, ages by this machine's.
    """
    if path is None:
        raise click.UsageError("add --pipeline FILE, which names the broker that devices speak to")
    with heard(path, credential) as (hearing, _):
        rows = [dict(zip(_COLUMNS, _cells(name, one), strict=True)) for name, one in hearing.heard().items()]
    if not rows:
        tell("no device has spoken at this broker, or this login may not read there (--credential)")
    if as_json:
        echo_json(rows)
    else:
        head = tuple(name.upper().replace("_", " ") for name in _COLUMNS)
        told = [head, *(tuple("-" if value is None else str(value) for value in row.values()) for row in rows)]
        echo_lines(aligned(told, texts=len(head), width=shown_width(), spare=_SPARE))
    return 0


def _cells(name: str, heard: Heard) -> tuple[str | int | None, ...]:
    state, deploy, pull = heard.state, heard.deploy, heard.pull or PullMessage(device=name)
    stands = None if state is None else f"{state.state}: {state.reason}" if state.reason else state.state
    away_since = None if state is None or state.since is None else f"{state.since[:19]}Z"
    return (
        name,
        pull.ring,
        None if deploy is None else deploy.release if deploy.result == "committed" else deploy.from_,
        None if deploy is None else deploy.at,
        pull.looked_at,
        age_s(pull.looked_at),
        stands,
        *_trouble(deploy, pull),
        (away_since or "unknown") if state is not None and state.state == "offline" else None,
    )


def _trouble(deploy: DeployMessage | None, pull: PullMessage) -> tuple[str | None, str | None]:
    """Return the release that failed and why: as the last look has it, unless the last switch tells the same, or later.

    A lock is waited for, and a registry or a setting is of no release: none has failed then.
    """
    is_told = (
        deploy is not None
        and deploy.release == pull.release
        and (pull.result == "rolled-back" or (pull.at or "") <= deploy.at)
    )
    if pull.code is not None and not is_told:
        is_of_none = pull.code.startswith(("lock.", "registry.", "device.settings"))
        return None if is_of_none else pull.release, f"{pull.code}: {pull.reason}"
    if deploy is not None and deploy.result != "committed":
        return deploy.release, deploy.reason or deploy.result
    return None, (pull.reason or pull.result) if pull.result == "kept" else None
