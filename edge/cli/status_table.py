"""What devices run and take, one row for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from edge.cli.columns import aligned, shown_width
from edge.cli.fleet_rows import printable
from edge.cli.run_command import tell

if TYPE_CHECKING:
    from edge.delivery.outcome import Outcome
    from edge.deploy.fleet.rollout import FleetResult
    from edge.deploy.fleet.status import DeviceState
    from edge.wire.status import FileReport, StatusAnswer, TakesReport

__all__ = ["age_of", "counters_text", "show_table"]

_HEAD = ("TARGET", "RELEASE", "DEVICE", "SIGNER", "CHANNELS", "COUNTED", "REVOCATION LIST", "SEEN")
_SPARE = ("COUNTED", "REVOCATION LIST", "CHANNELS", "SIGNER")
_DAY_S = 86_400


def show_table(
    result: FleetResult,
    answers: Mapping[str, StatusAnswer],
    states: Mapping[str, DeviceState],
    seen: Mapping[str, str | None],
) -> None:
    """Print a row for each target on stdout, on stderr why some say nothing, and what is wrong with devices.

    `states` are how the services say that their devices stand; `seen` is when each answered last.
    """
    rows: list[tuple[str, ...]] = [_HEAD]
    for one in result.outcomes:
        state = states.get(one.target)
        rows.append(_row(one, answers.get(one.target), "-" if state is None else state.state, seen[one.target]))
    for line in aligned(rows, texts=len(_HEAD), width=shown_width(), spare=_SPARE):
        click.echo(line)
    for name, state in states.items():
        if state.reason:
            tell(printable(f"{name}: {state.state}: {state.reason}"))
    for one in result.outcomes:
        if not one.is_done:
            tell(printable(f"{one.target}: {one.problem}" + (f"; {one.hint}" if one.hint else "")))


def counters_text(takes: TakesReport) -> str:
    """Return the highest sequence of each channel, in words."""
    return ", ".join(f"{channel} {count}" for channel, count in sorted(takes.sequences.items())) or "nothing"


def age_of(file: FileReport | None) -> str:
    """Return how old a list is, in words; None: there is none."""
    if file is None:
        return "no list"
    days = file.age_s // _DAY_S
    return f"{file.at} ({'today' if days == 0 else f'{days} days ago' if days > 1 else 'yesterday'})"


def _row(one: Outcome, answer: StatusAnswer | None, state: str, seen_at: str | None) -> tuple[str, ...]:
    from edge.wire.status import TakesReport

    if answer is None:
        return (one.target, one.result, "-", "-", "-", "-", "-", seen_at or "never")
    signer = next((kept for kept in answer.releases if kept.release == answer.current), None)
    takes = answer.takes if isinstance(answer.takes, TakesReport) else None
    said = (
        answer.current or "none",
        state,
        "-" if signer is None else signer.distrust or signer.signer or "-",
        "-" if takes is None else ", ".join(takes.channels) or "any",
        "-" if takes is None else counters_text(takes),
        "-" if takes is None else age_of(takes.revocation_list),
    )
    return (one.target, *(printable(cell) for cell in said), seen_at or "never")
