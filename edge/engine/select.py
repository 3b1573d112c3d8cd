"""Which engine runs a model on this machine."""

from __future__ import annotations

from edge.config.schema import EngineConfig
from edge.engine.openvino import OpenVinoEngine, OpenVinoOptions
from edge.errors import EngineError
from edge.protocols import Engine
from edge.types import ModelSpec, Precision

__all__ = ["make_engine"]


def make_engine(spec: ModelSpec, config: EngineConfig, *, precision: Precision, max_batch: int) -> Engine:
    """Return an engine for batches of up to `max_batch` frames.

    Raises:
        EngineError: if the kind or the precision is not to be had here.
    """
    if config.kind == "tensorrt":
        raise EngineError("engine.kind tensorrt: this version has no TensorRT engine yet", hint="use auto or openvino")
    if precision is Precision.INT8:
        raise EngineError(
            "precision int8: this version cannot turn a calibration table into an INT8 model yet",
            hint="use fp32; a model that already carries Q/DQ runs in INT8 under precision fp32",
        )
    options = OpenVinoOptions(
        max_batch=max_batch,
        precision=precision,
        threads=config.threads,
        rows_per_request=min(config.rows_per_request, max_batch),
    )
    return OpenVinoEngine(spec, options)
