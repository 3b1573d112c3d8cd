"""From the words on a command line to an exit code: choose targets, do something for each, show it, obey Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from edge.cli.paths import READ
from edge.cli.run_command import tell

if TYPE_CHECKING:
    from edge.config.targets import Inventory, Target
    from edge.deploy.fleet.inbox import Inbox
    from edge.deploy.fleet.push_one import PushOne
    from edge.deploy.fleet.rollout import FleetResult, Order

__all__ = [
    "Chosen",
    "Rollout",
    "ask_targets",
    "choose",
    "drive",
    "max_parallel_option",
    "targets_argument",
    "targets_option",
]

targets_argument = click.argument("words", nargs=-1, required=True, metavar="TARGET...")
targets_option = click.option(
    "--targets",
    "--inventory",
    "targets_path",
    type=READ,
    help="Inventory; default: ./targets.toml, then ~/.config/edge-deploy/targets.toml.",
)
max_parallel_option = click.option(
    "--max-parallel",
    type=click.IntRange(1, 256),
    metavar="N",
    help="At most N at once; default: as the inventory says.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The targets that were meant, and the inventory that they come from."""

    targets: tuple[Target, ...]
    inventory: Inventory

    def order(self, *, in_waves: bool, max_parallel: int | None) -> Order:
        """Return how to go about them: in the inventory's waves, or all at once for what changes nothing."""
        from edge.deploy.fleet.rollout import Order

        return Order(
            wave=self.inventory.wave if in_waves else None,
            max_parallel=max_parallel or self.inventory.max_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The release that is rolled out, and whether to go on with a rollout that did not end."""

    release: str
    channel: str
    is_resumed: bool = False


def choose(words: Sequence[str], targets_path: Path | None) -> Chosen:
    """Return the targets that the words mean.

    Raises:
        ConfigError: if the inventory cannot be used or a word means nothing.
    """
    from edge.config.selection import select
    from edge.config.targets import find_inventory

    inventory = find_inventory(targets_path)
    return Chosen(targets=select(words, inventory), inventory=inventory)


def drive(
    targets: Sequence[Target], one: PushOne, *, order: Order, is_json: bool, rollout: Rollout | None = None
) -> FleetResult:
    """Do `one` for each target and show it; return how each ended.

    A rollout of several targets, or a resumed one, keeps a journal.

    Raises:
        DeployError: before a target is touched: the journal is held or unusable, or there is nothing to resume.
    """
    from edge.cli.fleet_view import choose_view
    from edge.deploy.fleet.inbox import Inbox
    from edge.deploy.fleet.journal import Journal, journal_path
    from edge.deploy.fleet.rollout import run_fleet

    inbox = Inbox()
    has_journal = rollout is not None and (len(targets) > 1 or rollout.is_resumed)
    kept: Any = Journal(journal_path(rollout.release, rollout.channel)) if rollout and has_journal else nullcontext()
    names = tuple(target.name for target in targets)
    with kept as journal, choose_view(names, is_json=is_json) as view, _ctrl_c(inbox):
        result = run_fleet(
            targets,
            one,
            order=order,
            watcher=view,
            inbox=inbox,
            journal=journal,
            is_resumed=rollout is not None and rollout.is_resumed,
        )
    if len(targets) > 1:
        tell(fleet_summary(result))
    return result


def ask_targets(targets: Sequence[Target], one: PushOne, *, max_parallel: int) -> FleetResult:
    """Ask each target something, all at once; return the answers. What is shown goes when they are there."""
    from edge.cli.fleet_view import waiting_view
    from edge.deploy.fleet.inbox import Inbox
    from edge.deploy.fleet.rollout import Order, run_fleet

    inbox = Inbox()
    with waiting_view(tuple(target.name for target in targets)) as view, _ctrl_c(inbox):
        return run_fleet(targets, one, order=Order(max_parallel=max_parallel), watcher=view, inbox=inbox)


def fleet_summary(result: FleetResult) -> str:
    """Return one line: how many are done, how many are not and why."""
    counts: dict[str, int] = {}
    for outcome in result.outcomes:
        if not outcome.is_done:
            counts[outcome.result] = counts.get(outcome.result, 0) + 1
    total = len(result.outcomes) + result.done_before
    done = total - sum(counts.values())
    others = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{done} of {total} targets done{f'; {others}' if others else ''}"


@contextmanager
def _ctrl_c(inbox: Inbox) -> Iterator[None]:
    """Put Ctrl-C into the inbox; a third one ends the command wherever it is."""
    pressed = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 2:
            raise KeyboardInterrupt
        inbox.interrupt()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
