"""An engine for those who keep no plan, of a kind that this machine can run, or can make many of."""

from __future__ import annotations

from edge.engine.kind import EngineKind, EngineRequest, ModelForms, load_kind
from edge.engine.kinds import AUTO, choose_kind, facts_of_kind, kinds
from edge.errors import ConfigError
from edge.protocols import Engine

__all__ = ["build_and_load", "quick_kind", "usable_kind"]


def usable_kind(name: str = AUTO) -> EngineKind:
    """Return the kind of that name, or the one that `auto` stands for, which this machine can run.

    Raises:
        ConfigError: if there is none of that name, or it cannot run here, with what is missing and how to get it.
    """
    facts = choose_kind(name).facts
    if (why_not := facts.why_not()) is not None:
        raise ConfigError(f"engine {name}: cannot run here: {why_not}")
    return load_kind(facts.name)


def quick_kind(kind: EngineKind) -> EngineKind:
    """Return `kind` if it builds in seconds, else the best one here that does; `kind` itself where there is none."""
    if facts_of_kind(kind.name).is_quick:
        return kind
    others = (facts.name for facts in kinds().values() if facts.is_quick and facts.why_not() is None)
    return load_kind(next(others, kind.name))


def build_and_load(kind: EngineKind, model: ModelForms, request: EngineRequest) -> Engine:
    """Return an engine that is built here and now.

    Raises:
        EngineError: what `kind` raises.
    """
    return kind.load(kind.build(model, request).data, model.spec, request)
