"""`edge-deploy logs`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.fleet import targets_argument, targets_option
from edge.cli.paths import command

__all__ = ["logs"]


@command("""
  edge-deploy logs gate-01
  edge-deploy logs gate-01 -n 500""")
@targets_argument
@targets_option
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1000), metavar="N", default=100, show_default=True, help="How many."
)
def logs(words: tuple[str, ...], targets_path: Path | None, lines: int, as_json: bool) -> int:
    """Show the last lines that the device's units wrote to its journal."""
    from edge.cli.fleet import choose, show_answers
    from edge.deploy.fleet.ask import Asked
    from edge.wire.status import LogsRequest
    from edge.wire.verbs import LOGS

    chosen = choose(words, targets_path)
    asked = Asked(LOGS, LogsRequest(lines=lines))
    result = chosen.ask(asked)
    show_answers(result, asked.answers, as_json=as_json, lines_of=lambda one: [*one.lines, *filter(None, [one.note])])
    return result.exit_code
