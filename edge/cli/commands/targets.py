"""`edge-deploy targets`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from edge.cli.fleet import answer_as_json, choose, targets_option
from edge.cli.fleet_view import printable
from edge.cli.output import aligned, echo_json, echo_lines
from edge.cli.paths import READ, command
from edge.cli.run_command import tell
from edge.config.targets import ALL, Inventory, Target, trust_inventory
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.ask import Asked
from edge.wire.peer import Nothing, Problem
from edge.wire.verbs import STATUS, StatusAnswer

__all__ = ["targets"]

_STALE_S = 10.0  # the runtime tells of itself every second


@command("""
  edge-deploy targets
  edge-deploy targets site=north --check
  edge-deploy targets --targets north.toml --json
  edge-deploy targets --trust targets.toml""")
@click.argument("words", nargs=-1, metavar="[TARGET]...")
@targets_option
@click.option(
    "--trust",
    "trusted_path",
    type=READ,
    metavar="FILE",
    help="Inventory that may name an ssh_config although it is only found in a folder; until one of them changes.",
)
@click.option("--check", is_flag=True, help="Ask each target how it is.")
def targets(
    words: tuple[str, ...],
    targets_path: Path | None,
    trusted_path: Path | None,
    check: bool,
    as_json: bool,
) -> int:
    """List the inventory: its devices, how each is reached, in which order a rollout goes.

    A TARGET is a name, label=value or all; default: all. With --check the exit code is that of a fleet: 0 if all
    have answered, 11 if some have not, 3 if the only one has not.
    """
    if trusted_path is not None:
        trust_inventory(trusted_path)
    chosen = choose(words or (ALL,), trusted_path or targets_path)
    inventory, outcomes, exit_code = chosen.inventory, {}, 0
    asked = Asked(STATUS, Nothing())
    if check:
        result = chosen.ask(asked)
        outcomes, exit_code = {outcome.target: outcome for outcome in result.outcomes}, result.exit_code
    if as_json:
        echo_json(_document(chosen.targets, inventory, outcomes))
    else:
        states = {name: _state(outcome, asked.answers.get(name)) for name, outcome in outcomes.items()}
        _echo_lines(chosen.targets, inventory, states)
    return exit_code


def _document(listed: tuple[Target, ...], inventory: Inventory, answers: Mapping[str, Outcome]) -> dict[str, object]:
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
                **({"status": answer_as_json(answers[target.name])} if target.name in answers else {}),
            }
            for target in listed
        ],
    }


def _echo_lines(listed: tuple[Target, ...], inventory: Inventory, states: Mapping[str, tuple[str, ...]]) -> None:
    rows = []
    for one in listed:
        labels = " ".join(f"{key}={value}" for key, value in sorted(one.labels.items()))
        rows.append((one.name, _address(one), one.compatible or "-", labels, *states.get(one.name, ())))
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


def _state(outcome: Outcome, answer: StatusAnswer | None) -> tuple[str, ...]:
    if answer is None or not outcome.is_done:
        return "-", printable(f"{outcome.result}: {outcome.problem}")
    phase = answer.state.code if isinstance(answer.state, Problem) else answer.state.phase
    is_serving = answer.health is not None and answer.health.is_ready and 0 <= answer.health.age_s < _STALE_S
    return answer.current or "-", f"{phase}, {'serving' if is_serving else 'not serving'}"
