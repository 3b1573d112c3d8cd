"""`edge-deploy targets`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.fleet import choose, targets_option
from edge.cli.output import aligned, echo_json, echo_lines
from edge.cli.paths import command
from edge.cli.run_command import tell
from edge.config.targets import ALL, Inventory, Target

__all__ = ["targets"]


@command("""
  edge-deploy targets
  edge-deploy targets site=north
  edge-deploy targets --targets north.toml --json""")
@click.argument("words", nargs=-1, metavar="[TARGET]...")
@targets_option
def targets(words: tuple[str, ...], targets_path: Path | None, as_json: bool) -> None:
    """List the inventory: its devices, how each is reached, in which order a rollout goes.

    A TARGET is a name, label=value or all; default: all. How they are tells edge-deploy status --table.
    """
    chosen = choose(words or (ALL,), targets_path)
    if as_json:
        echo_json(_document(chosen.targets, chosen.inventory))
    else:
        _echo_lines(chosen.targets, chosen.inventory)


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
                "ssh_config": None if target.ssh_config is None else str(target.ssh_config),
                "compatible": target.compatible,
                "labels": dict(target.labels),
            }
            for target in listed
        ],
    }


def _echo_lines(listed: tuple[Target, ...], inventory: Inventory) -> None:
    rows = []
    for one in listed:
        labels = " ".join(f"{key}={value}" for key, value in sorted(one.labels.items()))
        rows.append((one.name, _address(one), one.compatible or "-", labels))
    echo_lines(aligned(rows, texts=len(rows[0])))
    wave = inventory.wave
    canary = "the first one" if wave.canary is None else ", ".join(wave.canary) or "none"
    tell(
        f"{len(listed)} targets; canary: {canary}; then {', '.join(map(str, wave.steps))}; "
        f"stops when more than {wave.max_failed} failed; at most {inventory.max_parallel} at once"
    )


def _address(target: Target) -> str:
    port = "" if target.port is None else f":{target.port}"
    return f"{target.user}@{target.host}{port}" if target.user else f"{target.host}{port}"
