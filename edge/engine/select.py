"""Which engine runs a model on this machine."""

from __future__ import annotations

import dataclasses

from edge.config.schema import EngineConfig
from edge.engine.openvino import OpenVinoEngine, OpenVinoOptions
from edge.errors import EngineError
from edge.protocols import Engine
from edge.types import ModelSpec, Precision

__all__ = ["make_engine"]


def make_engine(
    spec: ModelSpec, config: EngineConfig, *, precision: Precision, max_batch: int, quantized: bytes | None = None
) -> Engine:
    """Return an engine for batches of up to `max_batch` frames.

    Args:
        spec: the model.
        config: the engine's section of a pipeline.
        precision: arithmetic to use; int8 needs a model with Q/DQ pairs.
        max_batch: most frames at once.
        quantized: the model with Q/DQ pairs, to be run instead of the float one.

    Raises:
        EngineError: if the kind or the precision is not to be had here.
    """
    if config.kind == "tensorrt":
        raise EngineError("engine.kind tensorrt: this version has no TensorRT engine yet", hint="use auto or openvino")
    if quantized is not None:
        spec = dataclasses.replace(spec, is_quantized=True)
    if precision is Precision.INT8 and not spec.is_quantized:
        raise EngineError(
            f"precision int8: {spec.name} is a float model, and INT8 without a calibration table is never run",
            hint="name a table (edge-deploy calibrate), or use fp32",
        )
    options = OpenVinoOptions(
        max_batch=max_batch,
        precision=precision,
        threads=config.threads,
        rows_per_request=min(config.rows_per_request, max_batch),
    )
    return OpenVinoEngine(spec, options, content=quantized)
