"""`edge-deploy status`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.agent_option import agent_option
from edge.cli.fleet import targets_argument, targets_option
from edge.cli.lazy import verbosity_option
from edge.cli.paths import Command

if TYPE_CHECKING:
    from edge.deploy.fleet.status import DeviceState
    from edge.wire.software import AgentReport
    from edge.wire.status import HealthReport, KeptReport, StatusAnswer

__all__ = ["status"]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy status gate-01
  edge-deploy status all --table
  edge-deploy status site=north --json""",
)
@targets_argument
@targets_option
@click.option("--table", "as_table", is_flag=True, help="One row for each device.")
@agent_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def status(words: tuple[str, ...], targets_path: Path | None, as_table: bool, agent: str, as_json: bool) -> int:
    """Show what devices run and take: release, signer, phase, whether something is wrong with the device (`degraded`)
    and what, streams, how the last switch ended, what is kept to go back to, channels, counters, the age of the
    revocation list, and when this machine last heard of each device.
    """
    from edge.cli.answers import show_answers
    from edge.cli.fleet import ask_targets, choose
    from edge.cli.status_table import show_table
    from edge.deploy.fleet.over_ssh import connector
    from edge.deploy.fleet.seen import last_seen, note_seen
    from edge.deploy.fleet.status import AskedStatus

    chosen = choose(words, targets_path)
    asked = AskedStatus(connect=connector(agent))
    result = ask_targets(chosen.targets, asked, max_parallel=chosen.inventory.max_parallel)
    note_seen(chosen.targets, result.outcomes)
    seen = {target.name: last_seen(target) for target in chosen.targets}
    if as_table and not as_json:
        show_table(result, asked.answers, asked.states, seen)
    else:
        told = {name: (answer, asked.states.get(name)) for name, answer in asked.answers.items()}
        show_answers(result, told, as_json=as_json, lines_of=_lines, seen=seen)
    return result.exit_code


def _lines(told: tuple[StatusAnswer, DeviceState | None]) -> Iterator[str]:
    answer, device_state = told
    yield from _state(answer)
    yield from _agent(answer.agent)
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
    from edge.wire.ending import Problem

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
    yield f"phase     {state.phase}{on_trial}{waits}"
    if state.last is not None:
        why = f": {state.last.reason}" if state.last.reason else ""
        yield f"last      {state.last.release} {state.last.result} at {state.last.at}{why}"


def _current(kept: KeptReport) -> Iterator[str]:
    if kept.distrust:
        yield f"signer    {kept.signer or 'nobody'}, not trusted any more: {kept.distrust}; push a release that is"
    elif kept.signer:
        yield f"signer    {kept.signer}"
    if kept.software:
        yield f"software  {kept.software}"
    if kept.engine:
        yield f"engine    {kept.engine}"


def _agent(agent: AgentReport | None) -> Iterator[str]:
    """Who answers; an agent of an earlier version does not say."""
    if agent is None:
        return
    brought = (
        f" ({agent.software}), beside {agent.installed or 'what is'} installed" if agent.software else ", as installed"
    )
    owed = f"; what the release brought has failed at {agent.owed!r}, so this one goes first" if agent.owed else ""
    yield f"agent     {agent.version}{brought}{owed}"


def _takes(answer: StatusAnswer) -> Iterator[str]:
    """What it takes; an agent of an earlier version does not say."""
    from edge.cli.status_table import age_of, counters_text
    from edge.wire.ending import Problem

    takes = answer.takes
    if isinstance(takes, Problem):
        yield f"takes     {takes.code}: {takes.problem}"
    elif takes is not None:
        yield f"takes     {', '.join(takes.channels) or 'any channel'}; counted {counters_text(takes)}"
        yield f"revoked   {age_of(takes.revocation_list)}"


def _health(health: HealthReport | None) -> Iterator[str]:
    if health is None:
        yield "service   says nothing"
        return
    ready = "ready" if health.is_ready else "not ready"
    yield f"service   {ready}, {health.batches} batches, {health.age_s:g} s ago"
    for name, stream in sorted(health.streams.items()):
        yield f"stream    {name} {stream.state}, {stream.inferred} frames"
