"""What this machine reaches at most, as the kind of engine that runs here measures it."""

from __future__ import annotations

from collections.abc import Iterator

from edge.engine.kind import Peak, PeakingKind, load_kind
from edge.engine.kinds import choose_kind
from edge.errors import EngineError

__all__ = ["measured_peaks"]


def measured_peaks(kind: str) -> Iterator[Peak]:
    """Yield the peaks, each as it is measured; `kind` as in a pipeline file.

    Raises:
        ConfigError: if there is no such kind.
        EngineError: if it does not run here, or measures nothing.
    """
    facts = choose_kind(kind).facts
    if (why_not := facts.why_not()) is not None:
        raise EngineError(f"engine {facts.name}: {why_not}", hint="--engine auto takes one that runs here")
    working = load_kind(facts.name)
    if not isinstance(working, PeakingKind):
        raise EngineError(f"engine {facts.name} measures no peaks", hint="--engine auto takes the best one here")
    yield from working.peaks()
