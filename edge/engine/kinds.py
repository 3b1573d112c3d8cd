"""Which kinds of engine there are, which of them this machine has, and how many of its cores they may use.
Standard library only: the device's agent asks.

A kind is one folder under `edge/engine`, found by its `facts.py`, which holds `FACTS`; everything else of it, `kind.py`
first of all (`edge.engine.kind.EngineKind`), is loaded when an engine is made. None outside such a folder names it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import edge.engine
from edge.errors import ConfigError

__all__ = [
    "AUTO",
    "Choice",
    "KindFacts",
    "available_cores",
    "better_kind",
    "choose_kind",
    "facts_of_kind",
    "kinds",
    "use_at_most",
]

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """Facts of a kind before any library is imported."""

    name: str  # as in a pipeline file
    rank: int  # `auto` takes the usable kind of the highest rank
    why_not: Callable[[], str | None]  # the reason why this machine cannot run it, with what to do; None: it can
    # of the software and the machine that a plan depends on; they enter the engine's key
    versions: Callable[[], Mapping[str, str]]
    # what a build takes for a time, by the bytes of the model and the pixels of a whole batch
    build_memory_bytes: Callable[[int, int], int]
    is_quick: bool  # it builds in seconds, so that a search may build hundreds
    is_symmetric: bool = False  # of Q/DQ pairs it takes only what `edge.model.qdq.qdq_faults` finds nothing in


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The kind that runs here, and why: one sentence for logs, build report and `doctor`."""

    facts: KindFacts
    reason: str


def kinds() -> Mapping[str, KindFacts]:
    """Return the kinds by name, the one that `auto` likes best first."""
    found = [_facts(name) for name in _folders(tuple(edge.engine.__path__))]
    return {facts.name: facts for facts in sorted(found, key=lambda facts: (-facts.rank, facts.name))}


def facts_of_kind(name: str) -> KindFacts:
    """Raises `ConfigError` if there is none of that name."""
    known = kinds()
    if name not in known:
        raise ConfigError(f"engine.kind {name!r}: expected one of {', '.join((AUTO, *known))}")
    return known[name]


def choose_kind(name: str) -> Choice:
    """Return the kind that a pipeline's `engine.kind` stands for on this machine.

    A kind that is asked for by name is returned even where it cannot run: making an engine says why.
    Raises `ConfigError` if there is none of that name.
    """
    if name != AUTO:
        return Choice(facts=facts_of_kind(name), reason=f"{name}: asked for")
    passed_over: list[str] = []
    for facts in kinds().values():
        why_not = facts.why_not()
        if why_not is None:
            return Choice(facts=facts, reason=": ".join([facts.name, "; ".join(passed_over) or "the best one here"]))
        passed_over.append(f"not {facts.name}, {why_not}")
    raise ConfigError(f"engine.kind auto: nothing runs here: {'; '.join(passed_over)}")


def better_kind(name: str) -> KindFacts | None:
    """Return the kind that can run here and that `auto` prefers to the one of that name; None: there is none."""
    for facts in kinds().values():
        if facts.name == name:
            return None
        if facts.why_not() is None:
            return facts
    return None


@functools.lru_cache(maxsize=8)
def _folders(paths: tuple[str, ...]) -> tuple[str, ...]:
    folders = [module.name for module in pkgutil.iter_modules(paths, "edge.engine.") if module.ispkg]
    return tuple(name for name in folders if importlib.util.find_spec(f"{name}.facts") is not None)


def _facts(folder: str) -> KindFacts:
    facts = importlib.import_module(f"{folder}.facts").FACTS
    assert isinstance(facts, KindFacts)
    return facts


_most: list[int] = []


def available_cores() -> int:
    given = len(os.sched_getaffinity(0))
    return min(given, *_most) if _most else given


def use_at_most(cores: int) -> None:
    """Let engines that are made from now on use so many cores at most: others run beside this process."""
    _most[:] = [max(1, cores)]
