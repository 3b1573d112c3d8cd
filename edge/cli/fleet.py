"""From the words on a command line to an exit code: choose targets, do something for each, show it, obey Ctrl-C."""

from __future__ import annotations

import functools
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from edge.cli.fleet_view import choose_view, printable, waiting_view
from edge.cli.output import echo_json, echo_lines
from edge.cli.paths import READ
from edge.cli.run_command import tell
from edge.config.targets import ALL, Inventory, Target, find_inventory
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.ask import note_seen
from edge.deploy.fleet.journal import Journal, journal_path
from edge.deploy.fleet.rollout import FleetResult, Inbox, Interrupt, Order, PushOne, run_fleet
from edge.errors import ConfigError

__all__ = [
    "Chosen",
    "Rollout",
    "answer_as_json",
    "choose",
    "drive",
    "select",
    "show_answers",
    "targets_argument",
    "targets_option",
    "why_not",
]

A = TypeVar("A")
_ADDRESS = re.compile(
    r"((?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)"
)

targets_option = click.option(
    "--targets",
    "targets_path",
    type=READ,
    metavar="FILE",
    help="Inventory; default: ./targets.toml, then ~/.config/edge-deploy/targets.toml.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The targets that were meant, and the inventory that they come from."""

    targets: tuple[Target, ...]
    inventory: Inventory

    def ask(self, one: PushOne) -> FleetResult:
        """Ask each target something, all at once; return the answers. What is shown goes when they are there."""
        inbox, order = Inbox(), Order(max_parallel=self.inventory.max_parallel)
        with waiting_view(tuple(target.name for target in self.targets)) as view, _ctrl_c(inbox):
            return _run(self.targets, one, order=order, watcher=view, inbox=inbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The release that is rolled out, and whether to go on with a rollout that did not end."""

    release: str
    channel: str
    is_resumed: bool = False


def choose(words: Sequence[str], targets_path: Path | None) -> Chosen:
    """Return the targets that the words mean; ConfigError if the inventory cannot be used or a word means nothing."""
    inventory = find_inventory(targets_path)
    return Chosen(targets=select(words, inventory), inventory=inventory)


def targets_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Have a command take TARGET... and `--targets`, which it is given as `chosen`."""

    @click.argument("words", nargs=-1, required=True, metavar="TARGET...")
    @targets_option
    @functools.wraps(command)
    def with_chosen(*args: Any, words: tuple[str, ...], targets_path: Path | None, **others: Any) -> Any:
        return command(*args, chosen=choose(words, targets_path), **others)

    return with_chosen


def select(words: Sequence[str], inventory: Inventory) -> tuple[Target, ...]:
    """Return the targets that `words` mean, each once, in the order in which they are first meant.

    A word is a name of the inventory, `label=value`, `all`, or `[user@]host` as ssh knows it.

    Raises `ConfigError` if a word means nothing.
    """
    found: dict[str, Target] = {}
    for word in words:
        for target in _meant_by(word, inventory):
            found.setdefault(target.name, target)
    return tuple(found.values())


def _meant_by(word: str, inventory: Inventory) -> Sequence[Target]:
    if word in inventory.targets:
        return [inventory.targets[word]]
    if word == ALL:
        if not inventory.targets:
            raise ConfigError("all: there is no inventory", hint="write a targets.toml, or give --targets FILE")
        return list(inventory.targets.values())
    if "=" in word:
        return _labelled(word, inventory)
    address = _ADDRESS.fullmatch(word)
    if address is None:
        raise ConfigError(
            f"{word!r} is no target", hint="give a name of the inventory, label=value, all, or [user@]host"
        )
    return [Target(name=word, host=address["host"], user=address["user"])]


def _labelled(word: str, inventory: Inventory) -> Sequence[Target]:
    label, _, value = word.partition("=")
    having = [target for target in inventory.targets.values() if target.labels.get(label) == value]
    if not having:
        known = sorted(
            {f"{key}={text}" for target in inventory.targets.values() for key, text in target.labels.items()}
        )
        raise ConfigError(
            f"no target has {word}", hint=f"known: {', '.join(known)}" if known else "no target has a label"
        )
    return having


def drive(chosen: Chosen, one: PushOne, *, is_json: bool, rollout: Rollout | None = None) -> FleetResult:
    """Do `one` for each target and show it; return how each ended. A rollout to several targets goes in the inventory's
    waves, all else at once; several targets, or a resume, keep a journal.

    DeployError before a target is touched: the journal is held or unusable, or there is nothing to resume.
    """
    inbox, targets, inventory = Inbox(), chosen.targets, chosen.inventory
    is_in_waves, is_resumed = rollout is not None and len(targets) > 1, rollout is not None and rollout.is_resumed
    order = Order(wave=inventory.wave if is_in_waves else None, max_parallel=inventory.max_parallel)
    has_journal = is_in_waves or is_resumed
    kept: Any = Journal(journal_path(rollout.release, rollout.channel)) if rollout and has_journal else nullcontext()
    names = tuple(target.name for target in targets)
    with kept as journal, choose_view(names, is_json=is_json) as view, _ctrl_c(inbox):
        result = _run(targets, one, order=order, watcher=view, inbox=inbox, journal=journal, is_resumed=is_resumed)
    if len(targets) > 1:
        tell(fleet_summary(result))
    return result


def _run(targets: Sequence[Target], one: PushOne, **how: Any) -> FleetResult:
    result = run_fleet(targets, one, **how)
    note_seen(targets, result.outcomes)
    return result


def show_answers(
    result: FleetResult,
    answers: Mapping[str, A],
    *,
    as_json: bool,
    lines_of: Callable[[A], Iterable[str]],
    seen: Mapping[str, str | None] | None = None,
) -> None:
    """Print each answer on stdout, and on stderr why there is none, with when it was `seen` last if that is given."""
    if as_json:
        told = {one.target: {} if seen is None else {"seen_at": seen[one.target]} for one in result.outcomes}
        echo_json({one.target: {**answer_as_json(one), **told[one.target]} for one in result.outcomes})
        return
    for one in result.outcomes:
        if not one.is_done:
            tell(why_not(one, "" if seen is None else f"; last seen {seen[one.target] or 'never'}"))
            continue
        if len(result.outcomes) > 1:
            click.echo(f"{one.target}:")
        echo_lines(lines_of(answers[one.target]))


def why_not(one: Outcome, last: str = "") -> str:
    """Return why a target has not answered; problems begin with its host, which often is called as the target is."""
    problem = (one.problem or "").removeprefix(f"{one.target}: ")
    return printable(f"{one.target}: {problem}{last}" + (f"; {one.hint}" if one.hint else ""))


def answer_as_json(one: Outcome) -> Mapping[str, object]:
    """Return what a target has answered, or why it has not."""
    if one.is_done:
        return one.evidence
    return {"result": one.result, "code": one.code, "problem": one.problem, "hint": one.hint}


def fleet_summary(result: FleetResult) -> str:
    counts = Counter(outcome.result for outcome in result.outcomes if not outcome.is_done)
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
        inbox.put(Interrupt())

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
