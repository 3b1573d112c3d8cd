"""An engine for those who keep no plan, and the kind that suits a machine best."""

from __future__ import annotations

from edge.engine.kind import BuildRequest, EngineKind, ModelForms, load_kind
from edge.engine.kinds import AUTO, choose_kind
from edge.protocols import Engine

__all__ = ["best_kind", "build_and_load"]


def best_kind() -> EngineKind:
    """Return the kind that `auto` stands for on this machine.

    Raises:
        ConfigError: if nothing runs here, with what is missing of each.
    """
    return load_kind(choose_kind(AUTO).facts.name)


def build_and_load(kind: EngineKind, model: ModelForms, request: BuildRequest) -> Engine:
    """Return an engine that is built here and now.

    Raises:
        EngineError: what `kind` raises.
    """
    return kind.load(kind.build(model, request).data, model.spec, request)
