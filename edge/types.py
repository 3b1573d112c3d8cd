"""The values that travel between the rooms: frozen, validated where they are made, no behaviour beyond arithmetic.

Times are integers in nanoseconds unless the name says otherwise. Arrays inside a value are documented with shape and
dtype; B batch, H height, W width, N detections, K classes.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

# fmt: off
__all__ = [
    "CandidateRows", "ClockSource", "ColourOrder", "Counted", "Detections", "DropReason", "EngineOutput", "Frame",
    "FrameHeader", "FrameResult", "HISTOGRAM_BINS", "HeadFamily", "ImageSize", "Letterbox", "MagnitudeCounts",
    "ModelSpec", "OBB", "Observed", "PadPosition", "Polygon", "Precision", "Preprocess", "SourceCounts",
    "StageTimes", "StreamId", "StreamState", "Suppression", "Tracks",
]
# fmt: on

Polygon: TypeAlias = Sequence[Sequence[float]]
"""Corners in order, x and y as shares of width and height, from the top left."""
StreamId = NewType("StreamId", str)


class Counted:
    """Of what is counted nothing is negative: two counts that are wrong in opposite ways would add up all the same."""

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            for count in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(count, int | float) and count < 0:
                    raise ValueError(f"{type(self).__name__}: {name} is counted from 0 on, got {value}")


class PadPosition(str, enum.Enum):
    """Where the fitted image lies on the canvas."""

    CENTRE = "centre"
    TOP_LEFT = "top-left"


class ColourOrder(str, enum.Enum):
    """Channel order that the model was trained on; canvases are always RGB."""

    RGB = "rgb"
    BGR = "bgr"


class Precision(str, enum.Enum):
    """Arithmetic that an engine is asked to use."""

    INT8 = "int8"
    FP16 = "fp16"
    FP32 = "fp32"


class HeadFamily(str, enum.Enum):
    """Layouts of the output tensor that we can decode (see `edge.vision.heads`)."""

    YOLOV5 = "yolov5"  # (B, A, 5+K): cxcywh in pixels, objectness, scores. YOLOv5, YOLOv7
    YOLOV8 = "yolov8"  # (B, 4+K, A): cxcywh in pixels, scores. YOLOv8 to 26, raw grid
    YOLOV10 = "yolov10"  # (B, A, 6): xyxy in pixels, score, class. YOLOv10, YOLO26: end to end, no NMS
    YOLOX = "yolox"  # (B, A, 5+K): raw offsets in cells, log sizes, objectness, scores


class DropReason(str, enum.Enum):
    """Why a decoded frame was dropped on purpose."""

    MAX_FPS = "max_fps"  # the stream's own limit
    CAPPED = "capped"  # above the rate that the machine can serve, behind the decoder
    DAMAGED = "damaged"  # before the first clean key frame, or after lost or unusable data until the next one
    LATE = "late"  # a newer frame took its place before it was read
    SUPERSEDED = "superseded"  # a newer frame took its row in the open batch
    YIELDED = "yielded"  # its row went to a stream that had missed a turn
    STALE = "stale"  # older than the stream's `max_age_ms` before the engine was free
    STOPPED = "stopped"  # the run ended before its turn came
    FAILED = "failed"  # it could not be copied, or inference of its batch failed


class ClockSource(str, enum.Enum):
    """Clock that `captured_at` of a frame rests on."""

    RTCP_SR = "rtcp-sr"  # the camera's own clock, by its sender reports
    ARRIVAL = "arrival"
    FILE = "file"


class StreamState(str, enum.Enum):
    """Life of one stream as its consumers see it."""

    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSize:
    """Width and height in pixels, both positive; never a bare tuple, so that the order is never guessed."""

    width: int
    height: int

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"an image has at least one pixel, got {self.width}x{self.height}")

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """How pixels become the model's input; hashed into tables, bundles and engine keys.

    A canvas is uint8 RGB; an engine computes `(canvas in colour_order * scale - mean) / std`.
    """

    size: ImageSize
    pad_position: PadPosition = PadPosition.CENTRE
    pad_value: int = 114
    colour_order: ColourOrder = ColourOrder.RGB
    scale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if not 0 <= self.pad_value <= 255:
            raise ValueError(f"pad_value is a uint8, got {self.pad_value}")
        if self.scale <= 0 or min(self.std) <= 0:
            raise ValueError(f"scale and std are positive, got {self.scale} and {self.std}")

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, in a stable order."""
        return {
            "size": [self.size.width, self.size.height],
            "fit": "letterbox",
            "pad_position": self.pad_position.value,
            "pad_value": self.pad_value,
            "colour_order": self.colour_order.value,
            "scale": self.scale,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @property
    def sha256(self) -> str:
        """Lower-case hex digest of `as_json`: equal for equal pixels."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Letterbox:
    """Where a source image lies on a canvas: scaled to `fitted`, its corner at (`pad_left`, `pad_top`)."""

    source: ImageSize
    fitted: ImageSize
    canvas: ImageSize
    pad_left: int
    pad_top: int

    def __post_init__(self) -> None:
        fits_x = 0 <= self.pad_left <= self.canvas.width - self.fitted.width
        fits_y = 0 <= self.pad_top <= self.canvas.height - self.fitted.height
        if not (fits_x and fits_y):
            raise ValueError(f"{self.fitted} at ({self.pad_left}, {self.pad_top}) is not inside {self.canvas}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameHeader:
    """Facts of a frame besides its pixels.

    `frame` is the decoder's count when this frame was taken (from 1, growing; its jumps are dropped frames).
    `source_size` is before any scaling; `read_at_ns` is on the monotonic clock; `decode_ns` is how old the frame was
    when it was read (0 where the source cannot know).
    """

    stream: StreamId
    frame: int
    pts_ns: int
    captured_at_ns: int
    clock: ClockSource
    source_size: ImageSize
    read_at_ns: int
    decode_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One decoded picture, already scaled to `letterbox.fitted`.

    `image` is uint8 (fitted.height, fitted.width, 3) RGB, may have padded rows (strides), and is only valid until the
    next `read` or `close` of its source. The one copy of it that is made is made black in the polygons of `black`.
    """

    header: FrameHeader
    letterbox: Letterbox
    image: NDArray[np.uint8]
    black: Sequence[Polygon] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRows:
    """The cells of a batch's raw output that can hold a detection, as they are in it; M of them, C values each.

    At least every cell whose best score is above `score_threshold`, in the order of `row`, then `cell`.

    Attributes:
        row, cell: int64 (M,), which frame of the batch, which cell or anchor of the output.
        values: float32 (M, C), what the raw output holds of the cell.
        score_threshold, whole: of cells at or below it only the raw output tells, while it is there (None: it is not).
    """

    row: NDArray[np.int64]
    cell: NDArray[np.int64]
    values: NDArray[np.float32]
    score_threshold: float
    whole: Callable[[], NDArray[np.float32]] | None = None

    def __post_init__(self) -> None:
        count = len(self.values)
        if self.values.ndim != 2 or self.row.shape != (count,) or self.cell.shape != (count,):
            found = f"{self.row.shape}, {self.cell.shape}, {self.values.shape}"
            raise ValueError(f"expected row (M,), cell (M,), values (M, C); got {found}")

    def __len__(self) -> int:
        return len(self.values)


EngineOutput: TypeAlias = NDArray[np.float32] | CandidateRows
"""Output of an engine for a batch: the model's raw output, float32 (count, ...), or its candidates alone."""


HISTOGRAM_BINS = 2048
"""Bins of |x|, each as wide as a power of two: see `edge.calibrate.histogram`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MagnitudeCounts:
    """How often which |x| occurred among float values, counted by the device on which they lie.

    Attributes:
        counts: int64 (HISTOGRAM_BINS,), in bins over the range of `edge.calibrate.histogram` for `amax`.
        zeros: how many values were exactly zero; they are in no bin.
        not_finite: how many were NaN or infinite; nor are these.
        amax: the largest finite |x|, exact.
    """

    counts: NDArray[np.int64]
    zeros: int
    not_finite: int
    amax: float

    def __post_init__(self) -> None:
        if self.counts.shape != (HISTOGRAM_BINS,) or self.counts.dtype != np.int64 or bool((self.counts < 0).any()):
            raise ValueError(f"counts are int64 ({HISTOGRAM_BINS},), got {self.counts.dtype} {self.counts.shape}")
        if min(self.zeros, self.not_finite, self.amax) < 0 or not math.isfinite(self.amax):
            raise ValueError(f"{self.zeros} zeros, {self.not_finite} not finite and a largest {self.amax} cannot be")

    @property
    def total(self) -> int:
        return int(self.counts.sum()) + self.zeros + self.not_finite


Observed: TypeAlias = NDArray[np.float32] | MagnitudeCounts
"""Output of an engine for a tensor that is to be counted: its values, float32 (count, ...), or the counts of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """Detections of one frame, highest score first.

    Attributes:
        xyxy: float32 (N, 4), pixels of the source frame.
        score: float32 (N,), 0 to 1.
        class_id: int32 (N,), index of the model's label.
    """

    xyxy: NDArray[np.float32]
    score: NDArray[np.float32]
    class_id: NDArray[np.int32]

    def __post_init__(self) -> None:
        count = len(self.score)
        if self.xyxy.shape != (count, 4) or self.score.shape != (count,) or self.class_id.shape != (count,):
            found = f"{self.xyxy.shape}, {self.score.shape}, {self.class_id.shape}"
            raise ValueError(f"expected xyxy (N, 4), score (N,), class_id (N,); got {found}")

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracks:
    """Which objects the N detections of a frame show.

    Attributes:
        track_id: int64 (N,), the number of the object, from 1; 0 where a detection shows none that is followed (yet).
        class_id: int32 (N,), the class of the object over all its frames; where `track_id` is 0, of the detection.
        ended: numbers of objects that were given up since the frame before.
        began: of objects that have a number since this frame, where they were seen in the one before: xyxy, pixels.
    """

    track_id: NDArray[np.int64]
    class_id: NDArray[np.int32]
    ended: tuple[int, ...] = ()
    began: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """How long one frame spent in each stage, nanoseconds of the monotonic clock."""

    decode_ns: int
    batch_wait_ns: int
    infer_ns: int
    post_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameResult:
    """The published part of a frame; holds no pixels, and its arrays are its own (no views of something large).

    `track_id` is int64 (N,) as in `Tracks`, None where the stream's objects are not followed.
    """

    header: FrameHeader
    detections: Detections
    times: StageTimes
    track_id: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts(Counted):
    """Counts of a source since it was made: `decoded` = read by us + sum of `dropped`, once it is closed.

    `skipped` pictures were not decoded, and are in none of these.
    """

    decoded: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    errors: int = 0
    skipped: int = 0

    def __add__(self, other: SourceCounts) -> SourceCounts:
        reasons = {**self.dropped, **other.dropped}
        return SourceCounts(
            decoded=self.decoded + other.decoded,
            dropped={reason: self.dropped.get(reason, 0) + other.dropped.get(reason, 0) for reason in reasons},
            errors=self.errors + other.errors,
            skipped=self.skipped + other.skipped,
        )


OBB = "obb"
"""The task whose boxes are turned: each has an angle, and we the upright box around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """Limits of a model that suppresses inside; None: the file does not tell."""

    score_threshold: float | None
    iou_threshold: float | None
    max_detections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Description of a model, read from its ONNX file.

    Attributes:
        batch: the fixed batch size, or None when it is dynamic.
        strides: of the detection levels, in the order of their cells in the output; empty for end-to-end heads.
        is_quantized: the graph carries Q/DQ nodes.
        evidence: why it was recognised, one sentence each.
        task: `detect`, or what is more than boxes (`edge.model.tasks`): `pose`, `segment`, `obb`.
        suppression: inside of it, None where there is none.
    """

    path: Path
    name: str
    sha256: str
    family: HeadFamily
    input_name: str
    output_name: str
    preprocess: Preprocess
    batch: int | None
    labels: tuple[str, ...]
    strides: tuple[int, ...]
    is_quantized: bool = False
    evidence: tuple[str, ...] = ()
    task: str = "detect"
    suppression: Suppression | None = None
