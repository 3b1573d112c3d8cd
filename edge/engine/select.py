"""Which engine runs a model on this machine."""

from __future__ import annotations

import dataclasses

from edge.config.schema import EngineConfig
from edge.engine.openvino import OpenVinoEngine, OpenVinoOptions
from edge.errors import EngineError
from edge.protocols import Engine
from edge.types import ModelSpec, Precision

__all__ = ["engine_kind", "make_engine", "make_plan"]


def engine_kind(config: EngineConfig) -> str:
    """Return the kind of engine that runs here: `auto` is the best one that this machine and this version have.

    Raises:
        EngineError: if the kind is not to be had here.
    """
    if config.kind == "tensorrt":
        raise EngineError("engine.kind tensorrt: this version has no TensorRT engine yet", hint="use auto or openvino")
    return "openvino"


def make_plan(spec: ModelSpec, config: EngineConfig, *, content: bytes | None = None) -> bytes:
    """Return what a device keeps of an engine, so that `make_engine` with it as `content` makes the same one again.

    Of OpenVINO, which compiles in seconds at every start, that is the model itself.

    Args:
        spec: the model.
        config: the engine's section of a pipeline.
        content: the model with Q/DQ pairs, where it is to be run instead of the file of `spec`.

    Raises:
        EngineError: if the kind is not to be had here.
    """
    engine_kind(config)
    return spec.path.read_bytes() if content is None else content


def make_engine(
    spec: ModelSpec, config: EngineConfig, *, precision: Precision, max_batch: int, content: bytes | None = None
) -> Engine:
    """Return an engine for batches of up to `max_batch` frames.

    Args:
        spec: the model.
        config: the engine's section of a pipeline.
        precision: arithmetic to use; int8 needs a model with Q/DQ pairs.
        max_batch: most frames at once.
        content: what to run instead of the file of `spec`: a plan, or the model with Q/DQ pairs for int8.

    Raises:
        EngineError: if the kind or the precision is not to be had here.
    """
    engine_kind(config)
    if content is not None and precision is Precision.INT8:
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
    return OpenVinoEngine(spec, options, content=content)
