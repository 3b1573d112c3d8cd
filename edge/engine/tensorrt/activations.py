"""TensorRT as something to look into: written next."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.tensorrt.binding import Library
from edge.errors import EngineError
from edge.protocols import ActivationEngine
from edge.types import ModelSpec

__all__ = ["TensorRtActivations"]


def TensorRtActivations(  # noqa: N802 - becomes a class
    library: Library,
    spec: ModelSpec,
    names: Sequence[str],
    *,
    largest_of: Sequence[str] = (),
    max_batch: int = 1,
    content: bytes | None = None,
) -> ActivationEngine:
    """Return an engine that gives out `names`, and of `largest_of` the largest |x|."""
    raise EngineError("the tensorrt engine does not run in this version", hint="use kind: auto")
