"""`edge-deploy status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from edge.cli.fleet import targets_argument, targets_option
from edge.cli.lazy import verbosity_option

__all__ = ["status"]


@click.command(
    epilog="""\b
Examples:
  edge-deploy status gate-01
  edge-deploy status site=north --json"""
)
@targets_argument
@targets_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def status(words: tuple[str, ...], targets_path: Path | None, as_json: bool) -> int:
    """Show what devices run: release, phase, streams, how the last switch ended, and what is kept to go back to."""
    from edge.cli.answers import show_answers
    from edge.cli.fleet import ask, choose
    from edge.deploy.fleet.ask import ask_each

    chosen = choose(words, targets_path)
    result = ask(chosen.targets, ask_each("status"), max_parallel=chosen.inventory.max_parallel)
    show_answers(result, as_json=as_json, lines_of=lambda answer: list(_lines(answer)))
    return result.exit_code


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    state: Mapping[str, Any] = answer.get("state") or {}
    if "problem" in state:
        yield f"state     {state['code']}: {state['problem']}"
    else:
        on_trial = f" of {state['target']}" if state.get("target") else ""
        waits = ", waits to be confirmed" if state.get("confirm") else ""
        yield f"release   {answer.get('current') or 'none'}"
        yield from _engine(answer)
        yield f"phase     {state.get('phase')}{on_trial}{waits}"
        yield from _last(state.get("last") or {})
    yield from _health(answer.get("health") or {})
    for kept in answer.get("releases") or []:
        ready = "" if kept.get("is_ready") else ", not built"
        yield f"kept      {kept.get('release')} ({kept.get('pipeline')}, sequence {kept.get('sequence')}{ready})"
    for name, bad in (answer.get("bad") or {}).items():
        yield f"failed    {name} at {bad.get('at')}: {bad.get('reason')}"
    holder = answer.get("lock")
    if holder:
        yield f"lock      held by {holder.get('who')} since {holder.get('since')} ({holder.get('why')})"


def _engine(answer: Mapping[str, Any]) -> Iterator[str]:
    """What runs and why; an agent of an earlier version does not say."""
    for kept in answer.get("releases") or []:
        if kept.get("release") == answer.get("current") and kept.get("engine"):
            yield f"engine    {kept['engine']}"


def _last(last: Mapping[str, Any]) -> Iterator[str]:
    if last:
        why = f": {last['reason']}" if last.get("reason") else ""
        yield f"last      {last.get('release')} {last.get('result')} at {last.get('at')}{why}"


def _health(health: Mapping[str, Any]) -> Iterator[str]:
    if not health:
        yield "service   says nothing"
        return
    ready = "ready" if health.get("is_ready") else "not ready"
    yield f"service   {ready}, {health.get('batches')} batches, {health.get('age_s')} s ago"
    for name, stream in sorted((health.get("streams") or {}).items()):
        yield f"stream    {name} {stream.get('state')}, {stream.get('inferred')} frames"
