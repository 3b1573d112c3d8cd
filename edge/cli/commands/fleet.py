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
    is, what is wrong with it, the release that failed there and why, or why it keeps what it has, and since when it
    says nothing. Times are by the devices' own clocks, ages by this machine's.
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
        told = [head, *(tuple(value or "-" for value in row.values()) for row in rows)]
        echo_lines(aligned(told, texts=len(head), width=shown_width(), spare=_SPARE))
    return 0


def _cells(name: str, heard: Heard) -> tuple[str | None, ...]:
    state, deploy, pull = heard.state, heard.deploy, heard.pull
    is_well = deploy is not None and deploy.result == "committed"
    release = None if deploy is None else deploy.release if is_well else deploy.from_
    trouble: tuple[str | None, str] | None = (
        None if deploy is None or is_well else (deploy.release, deploy.reason or deploy.result)
    )
    if trouble is None and pull is not None and pull.code is not None:
        trouble = (pull.release, f"{pull.code}: {pull.reason}")
    elif trouble is None and pull is not None and pull.result == "kept":
        trouble = (None, pull.reason or pull.result)
    looked_s = None if pull is None else age_s(pull.looked_at)
    is_away = state is not None and state.state == "offline"
    stands = None if state is None else f"{state.state}: {state.reason}" if state.reason else state.state
    return (
        name,
        None if pull is None else pull.ring,
        release,
        deploy.at if deploy is not None and is_well else None,
        None if pull is None else pull.looked_at,
        None if looked_s is None else str(looked_s),
        stands,
        None if trouble is None else trouble[0],
        None if trouble is None else trouble[1],
        (state.since or "unknown") if state is not None and is_away else None,
    )
