"""`edge-deploy status` and `logs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from edge.cli.fleet import Chosen, show_answers, targets_argument, why_not
from edge.cli.fleet_view import printable
from edge.cli.output import aligned, echo_lines, shown_width
from edge.cli.paths import command
from edge.cli.run_command import tell
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.ask import Asked, AskedStatus, DeviceState, last_seen
from edge.deploy.fleet.rollout import FleetResult
from edge.wire.peer import Problem
from edge.wire.verbs import LOGS, FileReport, HealthReport, KeptReport, LogsRequest, StatusAnswer, TakesReport

__all__ = ["logs", "status"]


@command("""
  edge-deploy status gate-01
  edge-deploy status all --table
  edge-deploy status site=north --json""")
@targets_argument
@click.option("--table", "as_table", is_flag=True, help="One row for each device.")
def status(chosen: Chosen, as_table: bool, as_json: bool) -> int:
    """Show what devices run and take: release, signer, phase, whether something is wrong with the device (`degraded`)
    and what, streams, how the last switch ended, what is kept to go back to, channels, counters, the age of the
    revocation list, and when this machine last heard of each device.
    """
    asked = AskedStatus()
    result = chosen.ask(asked)
    seen = {target.name: last_seen(target) for target in chosen.targets}
    if as_table and not as_json:
        _show_table(result, asked.answers, asked.states, seen)
    else:
        told = {name: (answer, asked.states.get(name)) for name, answer in asked.answers.items()}
        show_answers(result, told, as_json=as_json, lines_of=_lines, seen=seen)
    return result.exit_code


def _lines(told: tuple[StatusAnswer, DeviceState | None]) -> Iterator[str]:
    answer, device_state = told
    yield from _state(answer)
    if answer.installed is not None:  # an agent of an earlier version does not say
        later = f", older than the release's {answer.overdue}: edge-deploy provision" if answer.overdue else ""
        yield f"installed {answer.installed}{later}"
    if (ring := answer.ring) is not None:
        over = ", which is over: nothing new is taken until it is promoted again" if ring.is_over else ""
        yield f"ring      {ring.tag}: {ring.release or 'nothing'}, stated until {ring.valid_until}{over}"
    yield from _look(answer)
    yield from _takes(answer)
    if device_state is not None:
        yield f"device    {device_state.state}" + (f": {device_state.reason}" if device_state.reason else "")
    yield from _health(answer.health)
    for kept in answer.releases:
        ready = "" if kept.is_ready else ", not built"
        doubt = f", {kept.distrust}" if kept.distrust else ""
        yield f"kept      {kept.release} ({kept.pipeline}, sequence {kept.sequence}{ready}{doubt})"
    for name, bad in answer.bad.items():
        yield f"failed    {name} at {bad.at}: {bad.reason}"
    if answer.lock is not None:
        yield f"lock      held by {answer.lock.who} since {answer.lock.since} ({answer.lock.why})"


def _state(answer: StatusAnswer) -> Iterator[str]:
    state = answer.state
    if isinstance(state, Problem):
        yield f"state     {state.code}: {state.problem}"
        return
    on_trial = f" of {state.target}" if state.target else ""
    waits = ", waits to be confirmed" if state.confirm else ""
    yield f"release   {answer.current or 'none'}"
    for kept in answer.releases:
        if kept.release == answer.current:
            yield from _current(kept)
    missing = f": {answer.waits_for}" if answer.waits_for else ""
    yield f"phase     {state.phase}{on_trial}{waits}{missing}"
    if state.last is not None:
        why = f": {state.last.reason}" if state.last.reason else ""
        yield f"last      {state.last.release or 'no release'} {state.last.result} at {state.last.at}{why}"


def _current(kept: KeptReport) -> Iterator[str]:
    if kept.distrust:
        yield f"signer    {kept.signer or 'nobody'}, not trusted any more: {kept.distrust}; push a release that is"
    elif kept.signer:
        yield f"signer    {kept.signer}"
    if kept.software:
        yield f"software  {kept.software}"
    if kept.engine:
        yield f"engine    {kept.engine}"


def _look(answer: StatusAnswer) -> Iterator[str]:
    """The result of its last pull, and, which may be longer ago, when the registry last said what its ring has."""
    look = answer.look
    if look is None:
        return
    yield "pulled    " + ": ".join(part for part in (look.result, look.code, look.problem) if part)
    yield "looked    " + ("never" if look.looked_at is None else f"{look.looked_at}, {look.age_s} s ago")


def _takes(answer: StatusAnswer) -> Iterator[str]:
    """Its rules of acceptance; an agent of an earlier version does not say."""
    takes = answer.takes
    if isinstance(takes, Problem):
        yield f"takes     {takes.code}: {takes.problem}"
    elif takes is not None:
        yield f"takes     {', '.join(takes.channels) or 'any channel'}; highest sequence: {_counters_text(takes)}"
        yield f"revoked   {_age_of(takes.revocation_list)}"


def _health(health: HealthReport | None) -> Iterator[str]:
    if health is None:
        yield "service   says nothing"
        return
    ready = "ready" if health.is_ready else "not ready"
    yield f"service   {ready}, {health.batches} batches, {health.age_s:g} s ago"
    for name, stream in sorted(health.streams.items()):
        yield f"stream    {name} {stream.state}, {stream.inferred} frames"


_HEAD = ("TARGET", "RELEASE", "DEVICE", "SIGNER", "CHANNELS", "SEQUENCE", "REVOCATION LIST", "SEEN")
_SPARE = ("SEQUENCE", "REVOCATION LIST", "CHANNELS", "SIGNER")
_DAY_S = 86_400


def _show_table(
    result: FleetResult,
    answers: Mapping[str, StatusAnswer],
    states: Mapping[str, DeviceState],
    seen: Mapping[str, str | None],
) -> None:
    """Print a row for each target on stdout, on stderr errors and what is wrong; `seen` is when each answered last."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for one in result.outcomes:
        state = states.get(one.target)
        rows.append(_row(one, answers.get(one.target), "-" if state is None else state.state, seen[one.target]))
    echo_lines(aligned(rows, texts=len(_HEAD), width=shown_width(), spare=_SPARE))
    for name, state in states.items():
        if state.reason:
            tell(printable(f"{name}: {state.state}: {state.reason}"))
    for one in result.outcomes:
        if not one.is_done:
            tell(why_not(one))


def _counters_text(takes: TakesReport) -> str:
    return ", ".join(f"{channel} {count}" for channel, count in sorted(takes.sequences.items())) or "none yet"


def _age_of(file: FileReport | None) -> str:
    if file is None:
        return "no list"
    days = file.age_s // _DAY_S
    return f"{file.at} ({'today' if days == 0 else f'{days} days ago' if days > 1 else 'yesterday'})"


def _row(one: Outcome, answer: StatusAnswer | None, state: str, seen_at: str | None) -> tuple[str, ...]:
    if answer is None:
        return (one.target, one.result, "-", "-", "-", "-", "-", seen_at or "never")
    signer = next((kept for kept in answer.releases if kept.release == answer.current), None)
    takes = answer.takes if isinstance(answer.takes, TakesReport) else None
    said = (
        answer.current or "none",
        state,
        "-" if signer is None else signer.distrust or signer.signer or "-",
        "-" if takes is None else ", ".join(takes.channels) or "any",
        "-" if takes is None else _counters_text(takes),
        "-" if takes is None else _age_of(takes.revocation_list),
    )
    return (one.target, *(printable(cell) for cell in said), seen_at or "never")


@command("""
  edge-deploy logs gate-01
  edge-deploy logs gate-01 -n 500""")
@targets_argument
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1000), metavar="N", default=100, show_default=True, help="How many."
)
def logs(chosen: Chosen, lines: int, as_json: bool) -> int:
    """Show the last lines that the device's units wrote to its journal."""
    asked = Asked(LOGS, LogsRequest(lines=lines))
    result = chosen.ask(asked)
    show_answers(result, asked.answers, as_json=as_json, lines_of=lambda one: [*one.lines, *filter(None, [one.note])])
    return result.exit_code
