"""`edge-deploy rollback`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.fleet import max_parallel_option, targets_argument, targets_option
from edge.cli.paths import command

__all__ = ["rollback"]


@command(
    """
  edge-deploy rollback gate-01
  edge-deploy rollback gate-01 --to 3f9a1c07b2de
  edge-deploy rollback site=north --json""",
    json="Events as JSON Lines.",
)
@targets_argument
@targets_option
@max_parallel_option
@click.option("--to", metavar="RELEASE", help="A release that the device keeps; it goes on trial like a push.")
def rollback(
    words: tuple[str, ...], targets_path: Path | None, max_parallel: int | None, to: str | None, as_json: bool
) -> int:
    """Go back to the release that served before; its engine is kept, so this takes one restart of the service."""
    from edge.cli.fleet import choose, drive
    from edge.delivery.deliverable import DeliveryOptions
    from edge.deploy.fleet.over_ssh import roll_back_over_ssh

    chosen = choose(words, targets_path)
    order = chosen.order(in_waves=False, max_parallel=max_parallel)
    return drive(chosen.targets, roll_back_over_ssh(to, DeliveryOptions()), order=order, is_json=as_json).exit_code
