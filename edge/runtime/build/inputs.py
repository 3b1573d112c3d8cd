"""Inputs of a pipeline's engine, and its key: the same when it is built and when it is run."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace

import msgspec

from edge.config.pipeline import Pipeline
from edge.device.engines import EngineInputs
from edge.engine.pipeline_model import max_batch_of
from edge.engine.section import ChosenEngine
from edge.errors import ConfigError
from edge.types import ModelSpec, Precision

__all__ = ["engine_inputs", "require_same_inputs"]


def engine_inputs(pipeline: Pipeline, spec: ModelSpec, chosen: ChosenEngine, *, proof: str = "") -> EngineInputs:
    """Return the inputs of the engine that this pipeline gets on this machine.

    `proof`: what the golden frames are, for a pipeline with a fallback: by them its precision is chosen.
    """
    config = pipeline.config
    precision = Precision.INT8 if spec.is_quantized else Precision(config.model.precision)
    size, fallback = spec.preprocess.size, config.model.fallback
    table = config.model.calibration if precision is Precision.INT8 else None
    return EngineInputs(
        onnx_sha256=spec.sha256,
        calibration_sha256=None if table is None else hashlib.sha256(pipeline.resolve(table).read_bytes()).hexdigest(),
        kind=chosen.kind,
        precision=precision.value,
        max_batch=max_batch_of(pipeline),
        input_size=(size.width, size.height),
        preprocess_sha256=spec.preprocess.sha256,
        options=msgspec.to_builtins(chosen.options),
        versions=chosen.versions,
        fallback=fallback,
        proof="" if fallback is None else proof,
    )


def require_same_inputs(built: EngineInputs, pipeline: Pipeline, spec: ModelSpec, chosen: ChosenEngine) -> None:
    """Raises `ConfigError` naming what differs from what would be built now."""
    now = replace(
        engine_inputs(pipeline, spec, chosen), proof=built.proof
    )  # which golden frames, only its build has to know
    if now.key != built.key:
        pairs = ((one.name, getattr(built, one.name), getattr(now, one.name)) for one in fields(EngineInputs))
        told = "; ".join(f"{name}: built with {was}, now {now}" for name, was, now in pairs if was != now)
        raise ConfigError(
            f"{pipeline.path}: engine {built.key[:12]} does not belong to this release here ({told})",
            hint="it is built again by itself, or: push the release again",
        )
