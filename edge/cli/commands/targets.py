"""`edge-deploy targets`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.fleet import targets_option
from edge.cli.lazy import verbosity_option
from edge.cli.options import SECONDS

if TYPE_CHECKING:
    from edge.config.targets import Inventory, Target
    from edge.deploy.push.outcome import Outcome

__all__ = ["targets"]

_STALE_S = 10.0  # the runtime tells of itself every second


@click.command(
    epilog="""\b
Examples:
  edge-deploy targets
  edge-deploy targets site=north --check
  edge-deploy targets --targets north.toml --json"""
)
@click.argument("words", nargs=-1, metavar="[TARGET]...")
@targets_option
@click.option("--check", is_flag=True, help="Ask each target how it is.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=20, show_default=True, help="Of each answer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def targets(words: tuple[str, ...], targets_path: Path | None, check: bool, deadline_s: float, as_json: bool) -> int:
    """List the inventory: who there is, how each is reached, in which order a rollout goes.

    A TARGET is a name, label=value or all; default: all. With --check the exit code is that of a fleet: 0 if all
    have answered, 11 if some have not, 3 if the only one has not.
    """
    from edge.cli.fleet import ask, choose
    from edge.cli.output import echo_json
    from edge.config.targets import ALL
    from edge.deploy.fleet.ask import ask_each

    chosen = choose(words or (ALL,), targets_path)
    inventory, answers, exit_code = chosen.inventory, {}, 0
    if check:
        asked = ask(chosen.targets, ask_each("status", deadline_s=deadline_s), max_parallel=inventory.max_parallel)
        answers, exit_code = {outcome.target: outcome for outcome in asked.outcomes}, asked.exit_code
    if as_json:
        echo_json(_document(chosen.targets, inventory, answers))
    else:
        _echo_lines(chosen.targets, inventory, answers)
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
                **({"status": _status(answers[target.name])} if target.name in answers else {}),
            }
            for target in listed
        ],
    }


def _echo_lines(listed: tuple[Target, ...], inventory: Inventory, answers: Mapping[str, Outcome]) -> None:
    from edge.cli.border import tell

    rows = [
        (target.name, _address(target), target.compatible or "-", _labels(target), *_state(answers.get(target.name)))
        for target in listed
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
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


def _status(answer: Outcome) -> Mapping[str, object]:
    if answer.is_done:
        return answer.evidence
    return {"result": answer.result, "code": answer.code, "problem": answer.problem, "hint": answer.hint}


def _state(answer: Outcome | None) -> tuple[str, ...]:
    """Return what was answered in a few words; nothing where nobody was asked."""
    from edge.cli.fleet_rows import printable

    if answer is None:
        return ()
    if not answer.is_done:
        return "-", printable(f"{answer.result}: {answer.problem}")
    state, health = answer.evidence.get("state"), answer.evidence.get("health")
    phase = state.get("phase", state.get("code")) if isinstance(state, dict) else None
    is_serving = isinstance(health, dict) and health.get("is_ready") is True and _is_fresh(health.get("age_s"))
    return printable(answer.release) or "-", printable(f"{phase}, {'serving' if is_serving else 'not serving'}")


def _is_fresh(age_s: object) -> bool:
    return isinstance(age_s, (int, float)) and 0 <= age_s < _STALE_S
