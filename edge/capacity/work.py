"""Work of a pipeline: its cameras (how large, how coded, how fast, and where that is known from), its model in the
precision and batch that it runs in, its messages.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge.config.pipeline import Pipeline
from edge.engine.kind import QdqForm
from edge.engine.section import open_model
from edge.errors import ConfigError, ModelError
from edge.model.account import account_of_model
from edge.model.graph import Graph, graph_from_bytes
from edge.model.layer_account import ModelAccount
from edge.quantize.forms import Forms
from edge.quantize.precision import precision_of
from edge.types import ImageSize, ModelSpec, Precision

__all__ = [
    "ASSUMED",
    "Origin",
    "PipelineModel",
    "StreamDemand",
    "Video",
    "Work",
    "model_of_pipeline",
    "video_from_text",
    "video_of",
    "work_of",
]

_TEXT = re.compile(r"(\d{2,5})x(\d{2,5})(?:@(\d+(?:\.\d+)?))?(?:/([A-Za-z0-9.]+))?")
_MOST_PX, _MOST_FPS = 16_384, 1000.0
_EXPECTED = "expected WIDTHxHEIGHT[@FPS][/CODEC], such as 1920x1080@30/h264"
_SAME_CODEC = {"hevc": "h265", "avc": "h264", "h.264": "h264", "h.265": "h265"}


class Origin(str, enum.Enum):
    """Where the facts of a camera come from."""

    SEEN = "seen"
    STATED = "stated"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """Video of a camera; `codec` None: pictures that need no decoder, or it is not known."""

    size: ImageSize
    fps: float
    codec: str | None

    def __post_init__(self) -> None:
        if not 0 < self.fps <= _MOST_FPS:
            raise ValueError(f"expected more than 0 and at most {_MOST_FPS:g} frames per second, got {self.fps:g}")

    def __str__(self) -> str:
        return f"{self.size}@{self.fps:g}" + ("" if self.codec is None else f"/{self.codec}")

    @property
    def pixels(self) -> int:
        return self.size.width * self.size.height

    @property
    def pixels_per_s(self) -> float:
        return self.pixels * self.fps


ASSUMED = Video(size=ImageSize(width=1920, height=1080), fps=30.0, codec="h264")
"""Where nothing is known of a camera and nothing is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDemand:
    """A stream of the pipeline."""

    id: str
    video: Video
    wanted_fps: float  # frames that are to be inferred, at most those that it sends
    origin: Origin
    why: str | None = None  # why its facts are assumed, or some of them; None where they are not

    def as_json(self) -> dict[str, Any]:
        size = self.video.size
        return {
            "stream": self.id,
            "size": [size.width, size.height],
            "fps": self.video.fps,
            "codec": self.video.codec,
            "wanted_fps": self.wanted_fps,
            "origin": self.origin.value,
            "why": self.why,
        }


def video_from_text(text: str, *, base: Video) -> Video:
    """Return what `1920x1080@30/h264` means; what it leaves out is as in `base`.
    Raises `ConfigError` if it means nothing.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r}: {_EXPECTED}")
    width, height, fps, codec = int(match[1]), int(match[2]), match[3], match[4]
    if not 16 <= min(width, height) <= max(width, height) <= _MOST_PX:
        raise ConfigError(f"{text!r}: expected sides of 16 to {_MOST_PX} px")
    size = ImageSize(width=width, height=height)
    try:
        return video_of(size, base.fps if fps is None else float(fps), base.codec if codec is None else codec)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def video_of(size: ImageSize, fps: float, codec: str | None) -> Video:
    """Return a video whose codec is called as in the tables; `raw` needs no decoder.
    Raises `ValueError` if `fps` is no rate.
    """
    name = None if codec is None else codec.lower()
    return Video(size=size, fps=fps, codec=None if name in (None, "raw") else _SAME_CODEC.get(name, name))


_KNOWN_BATCHES = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineModel:
    """A model as a pipeline runs it; with its Q/DQ pairs where that is INT8."""

    spec: ModelSpec
    graph: Graph
    precision: Precision

    def account(self, frames: int) -> ModelAccount:
        """Return the account of a batch of `frames`, or of the batch that the model is fixed to."""
        return _account(self, self.spec.batch or frames)


@functools.lru_cache(maxsize=_KNOWN_BATCHES)
def _account(model: PipelineModel, batch: int) -> ModelAccount:
    # GPUs compute in FP16 what INT8 leaves in float.
    float_type = Precision.FP16 if model.precision is Precision.INT8 else model.precision
    return account_of_model(model.graph, model.spec, batch=batch, float_type=float_type)


def model_of_pipeline(pipeline: Pipeline) -> PipelineModel:
    """Raise `EdgeError` if model or table cannot be used."""
    file, spec = open_model(pipeline)
    computed = precision_of(pipeline, spec, file.graph)
    if computed.table is None:
        return PipelineModel(spec=spec, graph=file.graph, precision=computed.precision)
    made = Forms(spec, computed.table, file=file).qdq_model(QdqForm())
    return PipelineModel(spec=spec, graph=graph_from_bytes(made.model, str(spec.path)), precision=Precision.INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The whole of it, per second."""

    cameras: tuple[StreamDemand, ...]
    model: PipelineModel
    max_frames: int  # of a batch, at most
    max_wait_s: float  # of the first frame of a batch for others
    mode: str  # of messages, as in a pipeline file
    heartbeat_s: float
    has_broker: bool

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
        return dataclasses.replace(self, cameras=tuple(cameras))


def work_of(pipeline: Pipeline, model: PipelineModel, cameras: Sequence[StreamDemand]) -> Work:
    """Raise `ModelError` if there is no camera."""
    if not cameras:
        raise ModelError(f"{pipeline.path}: expected a camera at least, there is none")
    config = pipeline.config
    return Work(
        cameras=tuple(cameras),
        model=model,
        max_frames=config.batch.max_frames,
        max_wait_s=config.batch.max_wait_ms / 1e3,
        mode=config.publish.mode,
        heartbeat_s=config.publish.heartbeat_s,
        has_broker=config.mqtt is not None,
    )
