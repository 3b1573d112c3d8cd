"""What a pipeline has to do: its cameras, its model in the precision and batch that it runs in, its messages."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from edge.capacity.demand import StreamDemand
from edge.config.pipeline import Pipeline
from edge.engine.kind import QdqForm
from edge.engine.pipeline_model import open_model
from edge.errors import ModelError
from edge.model.account import ModelAccount, account_of_model
from edge.model.graph import Graph, graph_from_bytes
from edge.quantize.forms import Forms
from edge.quantize.precision import precision_of
from edge.types import ModelSpec, Precision

__all__ = ["Messages", "PipelineModel", "Work", "model_of_pipeline", "work_of"]

_KNOWN_BATCHES = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineModel:
    """A model as a pipeline runs it; with its Q/DQ pairs where that is INT8."""

    spec: ModelSpec
    graph: Graph
    precision: Precision

    def account(self, frames: int, *, remainder: Precision = Precision.FP16) -> ModelAccount:
        """Return the account of a batch of `frames`, or of the batch that the model is fixed to.

        Args:
            frames: of the batch.
            remainder: in what is counted what INT8 leaves.
        """
        return _account(self, self.spec.batch or frames, remainder)


@functools.lru_cache(maxsize=_KNOWN_BATCHES)
def _account(model: PipelineModel, batch: int, remainder: Precision) -> ModelAccount:
    float_type = remainder if model.precision is Precision.INT8 else model.precision
    return account_of_model(model.graph, model.spec, batch=batch, float_type=float_type)


def model_of_pipeline(pipeline: Pipeline) -> PipelineModel:
    """Return the model of a pipeline.

    Raises:
        EdgeError: if model or table cannot be used.
    """
    file, spec = open_model(pipeline)
    computed = precision_of(pipeline, spec, file.graph)
    if computed.table is None:
        return PipelineModel(spec=spec, graph=file.graph, precision=computed.precision)
    made = Forms(spec, computed.table, file=file).qdq_model(QdqForm())
    return PipelineModel(spec=spec, graph=graph_from_bytes(made.model, str(spec.path)), precision=Precision.INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """When frames become messages: `mode` as in a pipeline file."""

    mode: str
    heartbeat_s: float
    goes_to_broker: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The whole of it, per second.

    Attributes:
        max_frames: of a batch, at most.
        max_wait_s: of the first frame of a batch for others.
    """

    cameras: tuple[StreamDemand, ...]
    model: PipelineModel
    max_frames: int
    max_wait_s: float
    messages: Messages

    @property
    def wanted_fps(self) -> float:
        """Frames to infer, all cameras together."""
        return sum(camera.wanted_fps for camera in self.cameras)

    @property
    def decoded_fps(self) -> float:
        """Frames to decode: all that they send."""
        return sum(camera.video.fps for camera in self.cameras)

    @property
    def most_frames(self) -> int:
        """Of a batch: each camera has one at most."""
        return min(self.max_frames, len(self.cameras))

    @property
    def batches_per_s(self) -> float:
        """As few as there can be: the fastest camera is in each, unless more come than fit."""
        fastest_fps = max(camera.wanted_fps for camera in self.cameras)
        return max(fastest_fps, self.wanted_fps / self.most_frames)

    @property
    def frames(self) -> float:
        """Of a batch, on average."""
        return self.wanted_fps / self.batches_per_s

    def with_cameras(self, cameras: Sequence[StreamDemand]) -> Work:
        """Return the same for other cameras."""
        return dataclasses.replace(self, cameras=tuple(cameras))


def work_of(pipeline: Pipeline, model: PipelineModel, cameras: Sequence[StreamDemand]) -> Work:
    """Return what a pipeline has to do for these cameras.

    Raises:
        ModelError: if there is no camera.
    """
    if not cameras:
        raise ModelError(f"{pipeline.path}: expected a camera at least, there is none")
    config = pipeline.config
    return Work(
        cameras=tuple(cameras),
        model=model,
        max_frames=config.batch.max_frames,
        max_wait_s=config.batch.max_wait_ms / 1e3,
        messages=Messages(
            mode=config.publish.mode,
            heartbeat_s=config.publish.heartbeat_s,
            goes_to_broker=config.mqtt is not None,
        ),
    )
