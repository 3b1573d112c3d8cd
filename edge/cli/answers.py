"""Answers of several devices: one JSON document, or a few lines for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from edge.cli.fleet_rows import printable
from edge.cli.output import echo_json
from edge.cli.run_command import tell

if TYPE_CHECKING:
    from edge.delivery.outcome import Outcome
    from edge.deploy.fleet.rollout import FleetResult

__all__ = ["show_answers"]


A = TypeVar("A")


def show_answers(
    result: FleetResult,
    answers: Mapping[str, A],
    *,
    as_json: bool,
    lines_of: Callable[[A], Iterable[str]],
    seen: Mapping[str, str | None] | None = None,
) -> None:
    """Print each answer on stdout, and on stderr why there is none, with when it was `seen` last if that is given."""
    if as_json:
        echo_json({one.target: _document(one, seen) for one in result.outcomes})
        return
    for one in result.outcomes:
        if len(result.outcomes) > 1:
            click.echo(f"{one.target}:")
        if one.is_done:
            for line in lines_of(answers[one.target]):
                click.echo(line)
        else:
            last = "" if seen is None else f"; last seen {seen[one.target] or 'never'}"
            tell(printable(f"{one.target}: {one.problem}" + last + (f"; {one.hint}" if one.hint else "")))


def _document(one: Outcome, seen: Mapping[str, str | None] | None) -> Mapping[str, object]:
    told = {} if seen is None else {"seen_at": seen[one.target]}
    if one.is_done:
        return {**one.evidence, **told}
    return {"result": one.result, "code": one.code, "problem": one.problem, "hint": one.hint, **told}
