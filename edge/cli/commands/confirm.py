"""`edge-deploy confirm`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.fleet import targets_argument, targets_option
from edge.cli.paths import command

__all__ = ["confirm"]


@command("""
  edge-deploy confirm gate-01
  edge-deploy confirm gate-01 --release 3f9a1c07b2de""")
@targets_argument
@targets_option
@click.option("--release", metavar="RELEASE", help="Only if this one is on trial. Default: whichever is.")
def confirm(words: tuple[str, ...], targets_path: Path | None, release: str | None, as_json: bool) -> int:
    """Say that the release on trial may stay, where it was pushed with --confirm; the device still judges it."""
    from edge.cli.fleet import choose, show_answers
    from edge.deploy.fleet.ask import Asked
    from edge.wire.release import ConfirmRequest
    from edge.wire.verbs import CONFIRM

    chosen = choose(words, targets_path)
    asked = Asked(CONFIRM, ConfirmRequest(release=release))
    result = chosen.ask(asked)
    show_answers(
        result, asked.answers, as_json=as_json, lines_of=lambda answer: [f"release {answer.release} is confirmed"]
    )
    return result.exit_code
