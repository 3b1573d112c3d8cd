"""Answers of several devices: one JSON document, or a few lines for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from edge.cli.border import tell
from edge.cli.fleet_rows import printable
from edge.cli.output import echo_json

if TYPE_CHECKING:
    from edge.deploy.fleet.rollout import FleetResult

__all__ = ["show_answers"]


def show_answers(result: FleetResult, *, as_json: bool, lines_of: Callable[[Mapping[str, Any]], list[str]]) -> None:
    """Print each answer on stdout, and on stderr why there is none; what a device said cannot move the cursor."""
    if as_json:
        echo_json(
            {
                one.target: one.evidence
                if one.is_done
                else {"result": one.result, "code": one.code, "problem": one.problem, "hint": one.hint}
                for one in result.outcomes
            }
        )
        return
    for one in result.outcomes:
        if len(result.outcomes) > 1:
            click.echo(f"{one.target}:")
        if one.is_done:
            for line in lines_of(one.evidence):
                click.echo("".join(character if character.isprintable() else "?" for character in line))
        else:
            tell(printable(f"{one.target}: {one.problem}" + (f"; {one.hint}" if one.hint else "")))
