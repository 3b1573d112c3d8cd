"""Engines to measure with, until calibration and evaluation are handed a kind and forms."""

from __future__ import annotations

import dataclasses

from edge.engine.kind import BuildRequest
from edge.engine.select import best_kind
from edge.protocols import Engine
from edge.types import ModelSpec, Precision

__all__ = ["make_engine"]


def make_engine(
    spec: ModelSpec, *, precision: Precision, max_batch: int, content: bytes | None = None, threads: int | None = None
) -> Engine:
    """Return an engine of the model `content`, or of the file of `spec`."""
    kind = best_kind()
    options = kind.options_type() if threads is None else kind.options_type(threads=threads)
    if content is not None and precision is Precision.INT8:
        spec = dataclasses.replace(spec, is_quantized=True)
    request = BuildRequest(precision=precision, max_batch=max_batch, options=options)
    return kind.load(spec.path.read_bytes() if content is None else content, spec, request)
