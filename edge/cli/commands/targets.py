"""`edge-deploy targets`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.fleet import targets_option
from edge.cli.lazy import verbosity_option

if TYPE_CHECKING:
    from edge.config.targets import Inventory, Target

__all__ = ["targets"]


@click.command(
    epilog="""\b
Examples:
  edge-deploy targets
  edge-deploy targets site=north
  edge-deploy targets --targets north.toml --json"""
)
@click.argument("words", nargs=-1, metavar="[TARGET]...")
@targets_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def targets(words: tuple[str, ...], targets_path: Path | None, as_json: bool) -> int:
    """List the inventory: who there is, how each is reached, in which order a rollout goes.

    A TARGET is a name, label=value or all; default: all.
    """
    from edge.cli.fleet import choose
    from edge.cli.output import echo_json
    from edge.config.targets import ALL

    chosen = choose(words or (ALL,), targets_path)
    if as_json:
        echo_json(_document(chosen.targets, chosen.inventory))
    else:
        _echo_lines(chosen.targets, chosen.inventory)
    return 0


def _document(listed: tuple[Target, ...], inventory: Inventory) -> dict[str, object]:
    wave = inventory.wave
    return {
        "path": None if inventory.path is None else str(inventory.path),
        "max_parallel": inventory.max_parallel,
        "wave": {
            "canary": None if wave.canary is None else list(wave.canary),
            "steps": [str(step) for step in wave.steps],
            "max_failed": str(wave.max_failed),
            "soak_s": wave.soak_s,
        },
        "targets": [
            {
                "name": target.name,
                "host": target.host,
                "user": target.user,
                "port": target.port,
                "identity": None if target.identity is None else str(target.identity),
                "compatible": target.compatible,
                "labels": dict(target.labels),
            }
            for target in listed
        ],
    }


def _echo_lines(listed: tuple[Target, ...], inventory: Inventory) -> None:
    from edge.cli.border import tell

    rows = [(target.name, _address(target), target.compatible or "-", _labels(target)) for target in listed]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo(
            "  ".join((*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3])).rstrip()
        )
    wave = inventory.wave
    canary = "the first one" if wave.canary is None else ", ".join(wave.canary) or "none"
    tell(
        f"{len(listed)} targets; canary: {canary}; then {', '.join(map(str, wave.steps))}; "
        f"stops when more than {wave.max_failed} failed; at most {inventory.max_parallel} at once"
    )


def _address(target: Target) -> str:
    port = "" if target.port is None else f":{target.port}"
    return f"{target.user}@{target.host}{port}" if target.user else f"{target.host}{port}"


def _labels(target: Target) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(target.labels.items()))
