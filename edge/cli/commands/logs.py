"""`edge-deploy logs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.agent_option import agent_option
from edge.cli.fleet import targets_argument, targets_option
from edge.cli.lazy import verbosity_option
from edge.cli.paths import Command

if TYPE_CHECKING:
    from edge.wire.status import LogsAnswer

__all__ = ["logs"]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy logs gate-01
  edge-deploy logs gate-01 -n 500""",
)
@targets_argument
@targets_option
@click.option("-n", "--lines", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@agent_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def logs(words: tuple[str, ...], targets_path: Path | None, lines: int, agent: str, as_json: bool) -> int:
    """Show the last lines that the device's units wrote to its journal."""
    from edge.cli.answers import show_answers
    from edge.cli.fleet import ask_targets, choose
    from edge.deploy.fleet.ask import Asked
    from edge.deploy.fleet.over_ssh import connector
    from edge.wire.status import LogsRequest
    from edge.wire.verbs import LOGS

    chosen = choose(words, targets_path)
    asked = Asked(LOGS, LogsRequest(lines=lines), connect=connector(agent))
    result = ask_targets(chosen.targets, asked, max_parallel=chosen.inventory.max_parallel)
    show_answers(result, asked.answers, as_json=as_json, lines_of=_lines)
    return result.exit_code


def _lines(answer: LogsAnswer) -> list[str]:
    return [*answer.lines, *([answer.note] if answer.note else [])]
