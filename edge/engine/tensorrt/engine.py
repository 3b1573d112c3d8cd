"""The engine that runs a plan: written next."""

from __future__ import annotations

from edge.engine.kind import BuildRequest
from edge.engine.tensorrt.binding import Library
from edge.engine.tensorrt.plan import PlanHeader
from edge.errors import EngineError
from edge.protocols import Engine
from edge.types import ModelSpec

__all__ = ["TensorRtEngine"]


def TensorRtEngine(  # noqa: N802 - becomes a class
    library: Library, content: bytes, header: PlanHeader, spec: ModelSpec, request: BuildRequest
) -> Engine:
    """Return the engine of `content`, what TensorRT serialized."""
    raise EngineError("the tensorrt engine does not run in this version", hint="use kind: auto")
