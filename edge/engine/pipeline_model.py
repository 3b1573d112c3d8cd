"""A pipeline's demands on an engine: the model, its reading, the largest batch, the decoding of boxes."""

from __future__ import annotations

from edge.config.pipeline import Pipeline
from edge.config.uris import local_path
from edge.engine.section import read_section
from edge.errors import StatedError
from edge.model.graph import ModelFile, read_model_file
from edge.model.inspect import ModelOverrides, inspect_file
from edge.types import HeadFamily, ImageSize, ModelSpec
from edge.vision.heads import Detector, head_of

__all__ = ["detector_of", "max_batch_of", "open_model", "read_model"]


def read_model(pipeline: Pipeline) -> ModelSpec:
    return open_model(pipeline)[1]


def open_model(pipeline: Pipeline) -> tuple[ModelFile, ModelSpec]:
    """Return the pipeline's model file, and what it is as far as the pipeline does not say otherwise.

    Each load of a pipeline comes through here, so that what is wrong with its `engine` section shows before all else.
    Raises `ConfigError` naming file, line and key, if the `engine` section cannot be used, there is nothing to fall
    back to, or the model is not what the pipeline says of it; ModelError if it is damaged or unknown.
    """
    read_section(pipeline)
    model = pipeline.config.model
    size = model.input_size
    overrides = ModelOverrides(
        family=None if model.family is None else HeadFamily(model.family),
        labels=None if model.labels is None else tuple(model.labels),
        input_size=None if size is None else ImageSize(width=size[0], height=size[1]),
    )
    file = read_model_file(pipeline.resolve(model.onnx))
    try:
        spec = inspect_file(file, overrides=overrides)
    except StatedError as error:
        raise pipeline.error(("model", error.key), str(error)) from error
    if model.fallback is not None and spec.is_quantized:
        problem = f"{spec.path} carries Q/DQ pairs and has no float form; remove it, or use the float model and a table"
        raise pipeline.error(("model", "fallback"), problem)
    return file, spec


def max_batch_of(pipeline: Pipeline) -> int:
    # A live stream never has more than its newest frame to infer; a file always has a next one.
    streams, most = pipeline.config.streams, pipeline.config.batch.max_frames
    folder = pipeline.path.parent
    has_waiting = any(not stream.realtime and local_path(stream.uri, folder) is not None for stream in streams)
    return most if has_waiting else min(most, len(streams))


def detector_of(pipeline: Pipeline, spec: ModelSpec, *, score_threshold: float | None = None) -> Detector:
    """`score_threshold` None: the pipeline's."""
    model = pipeline.config.model
    return Detector(
        head=head_of(spec),
        score_threshold=model.score_threshold if score_threshold is None else score_threshold,
        iou_threshold=model.iou_threshold,
        max_detections=model.max_detections,
    )
