"""From frame results to messages: selected and numbered in the pipeline, converted and encoded by what sends them.

In every mode of selection a frame is also published when the last one is `heartbeat_s` old, so that silence means a
fault. The comparison is with the last *published* frame of the stream: slow drift adds up.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.protocols import Publisher
from edge.publish.message import RunInfo
from edge.publish.messages import LIVE_EXPIRY_S, AgesMs, Clock, DetectedObject, DetectionsMessage, NumberedKind
from edge.types import Detections, FrameHeader, FrameResult, StageTimes, StreamId
from edge.vision.boxes import iou_matrix

__all__ = [
    "SAME_BOX_IOU",
    "FrameMessage",
    "FramePublisher",
    "Selection",
    "detections_message",
    "frame_from_packed",
    "is_clock_synced",
    "is_noticeably_different",
    "rfc3339_from_ns",
]

SAME_BOX_IOU = 0.8

# The payload without detections, and what each of them adds; measured with labels of usual length.
_BASE_BYTES = 540
_OBJECT_BYTES = 90
# systemd-timesyncd creates it after the first answer of a time server; adjtimex() is closed to a hardened service.
_SYNC_MARKER = Path("/run/systemd/timesync/synchronized")
_MARKER_AGE_NS = 10_000_000_000
# One decimal of a pixel, three of a score: as `numpy.round` does it, whose own way there costs several times as much.
_ROUNDED_AT = np.array([10.0, 10.0, 10.0, 10.0, 1000.0])


def rfc3339_from_ns(unix_ns: int) -> str:
    """Return UTC with microseconds, e.g. `2026-11-20T10:15:02.113402Z`; what lies below a microsecond is cut off."""
    seconds, rest_ns = divmod(unix_ns, 1_000_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest_ns // 1000:06d}Z", time.gmtime(seconds))


def is_clock_synced() -> bool | None:
    """Return whether a time server has set the system clock: True, or None when that is unknown, never a guessed False.

    Looks at the marker every ten seconds.
    """
    return _is_synced_at(time.monotonic_ns() // _MARKER_AGE_NS)


@functools.lru_cache(maxsize=1)
def _is_synced_at(_look: int) -> bool | None:
    return True if _SYNC_MARKER.exists() else None


def detections_message(
    result: FrameResult, *, info: RunInfo, seq: int, is_synced: bool | None = None
) -> DetectionsMessage:
    """Return the message of one frame; it shares nothing with `result`."""
    header, times = result.header, result.times
    return DetectionsMessage(
        device=info.device,
        stream=header.stream,
        epoch=info.epoch,
        seq=seq,
        frame=header.frame,
        pts_us=header.pts_ns // 1000,
        captured_at=rfc3339_from_ns(header.captured_at_ns),
        clock=Clock(source=header.clock.value, synced=is_synced),
        age_ms=AgesMs(  # with one decimal, by integers
            decode=times.decode_ns // 100_000 / 10,
            batch_wait=times.batch_wait_ns // 100_000 / 10,
            infer=times.infer_ns // 100_000 / 10,
            post=times.post_ns // 100_000 / 10,
        ),
        model=info.model,
        size=[header.source_size.width, header.source_size.height],
        detections=_objects(result.detections, info.labels, result.track_id),
    )


def _objects(found: Detections, labels: Sequence[str], track_id: NDArray[np.int64] | None) -> list[DetectedObject]:
    """Rounding happens in float64, or 233.4 would be written as 233.39999389648438."""
    if not len(found):
        return []
    values = np.empty((len(found), 5))
    values[:, :4], values[:, 4] = found.xyxy, found.score
    values[:, 2:4] -= values[:, :2]
    rounded = (np.rint(values * _ROUNDED_AT) / _ROUNDED_AT).tolist()
    known = len(labels)
    numbers = [None] * len(found) if track_id is None else [number or None for number in track_id.tolist()]
    return [
        DetectedObject(class_id, labels[class_id] if class_id < known else None, row.pop(), row, number)
        for class_id, row, number in zip(found.class_id.tolist(), rounded, numbers, strict=True)
    ]


class _Packed(msgspec.Struct, array_like=True, kw_only=True):
    """Fields of a frame message; the arrays as their bytes, little-endian."""

    header: FrameHeader
    times: StageTimes
    xyxy: bytes
    score: bytes
    class_id: bytes
    track_id: bytes | None
    epoch: int
    seq: int
    synced: bool | None


_packer = msgspec.msgpack.Encoder()
_unpacker = msgspec.msgpack.Decoder(_Packed)


@dataclass(slots=True, eq=False)
class FrameMessage:
    """A `TopicMessage` that is cheap to make in the pipeline's thread; it keeps the result, whose arrays are its own.

    It is converted and encoded at the first `encode`, which the sending thread calls while the pipeline's thread waits
    for the engine; dropped frames are never converted. `result` is None from then on.
    """

    schema: ClassVar[str] = "edge.detections/1"
    is_retained: ClassVar[bool] = False
    expiry_s: ClassVar[int] = LIVE_EXPIRY_S
    of: ClassVar[NumberedKind] = "detections"
    result: FrameResult | None
    _: KW_ONLY
    info: RunInfo
    seq: int
    is_synced: bool | None = None
    stream: StreamId = field(init=False)
    _captured_at_ns: int = field(init=False)
    _count: int = field(init=False)
    _payload: bytes = b""

    def __post_init__(self) -> None:
        assert self.result is not None
        header = self.result.header
        self.stream, self._captured_at_ns = header.stream, header.captured_at_ns
        self._count = len(self.result.detections)

    @property
    def epoch(self) -> int:
        return self.info.epoch

    @property
    def topic(self) -> str:
        return f"streams/{self.stream}/detections"

    @property
    def captured_at(self) -> str:
        """When the frame was captured, for the gap record should it be dropped."""
        return rfc3339_from_ns(self._captured_at_ns)

    @property
    def size_bytes(self) -> int:
        """About how long the payload is, or will be."""
        return _BASE_BYTES + _OBJECT_BYTES * self._count

    def pack(self) -> bytes | None:
        """Return all that is this frame's own, at a quarter of the cost of `encode`; None after that was called."""
        result = self.result
        if result is None:
            return None
        found = result.detections
        return _packer.encode(
            _Packed(
                header=result.header,
                times=result.times,
                xyxy=found.xyxy.tobytes(),
                score=found.score.tobytes(),
                class_id=found.class_id.tobytes(),
                track_id=None if result.track_id is None else result.track_id.tobytes(),
                epoch=self.epoch,
                seq=self.seq,
                synced=self.is_synced,
            )
        )

    def encode(self) -> bytes:
        """Two threads may ask at once."""
        result = self.result
        if result is None:
            return self._payload
        payload = detections_message(result, info=self.info, seq=self.seq, is_synced=self.is_synced).encode()
        self._payload = payload  # before the result goes: a reader that finds none finds this
        self.result = None
        return payload


def frame_from_packed(packed: bytes, info: RunInfo) -> FrameMessage:
    """Return the message of the run `info` whose `pack` gave these bytes; raises ValueError where none did."""
    one = _unpacker.decode(packed)
    found = Detections(
        xyxy=np.frombuffer(one.xyxy, "<f4").reshape(-1, 4),
        score=np.frombuffer(one.score, "<f4"),
        class_id=np.frombuffer(one.class_id, "<i4"),
    )
    track_id = None if one.track_id is None else np.frombuffer(one.track_id, "<i8")
    result = FrameResult(header=one.header, detections=found, times=one.times, track_id=track_id)
    return FrameMessage(result, info=info, seq=one.seq, is_synced=one.synced)


class Selection:
    """Decides frame by frame; one instance for all streams. The clock is the caller's, monotonic nanoseconds."""

    def __init__(self, mode: Literal["all", "nonempty", "change"], *, heartbeat_s: float) -> None:
        self._mode = mode
        self._heartbeat_ns = round(heartbeat_s * 1e9)
        self._last: dict[StreamId, tuple[int, Detections]] = {}

    def wants(self, stream: StreamId, found: Detections, *, now_ns: int) -> bool:
        """Return whether this frame is to be published; if so, it is the one that later frames are compared with."""
        last = self._last.get(stream)
        is_wanted = (
            self._mode == "all"
            or last is None
            or now_ns - last[0] >= self._heartbeat_ns
            or (self._mode == "nonempty" and len(found) > 0)
            or (self._mode == "change" and is_noticeably_different(found, last[1]))
        )
        if is_wanted:
            self._last[stream] = (now_ns, found)
        return is_wanted


def is_noticeably_different(now: Detections, then: Detections) -> bool:
    """Return whether a class has another count, or a box of either frame has no close counterpart in the other."""
    if len(now) != len(then) or not np.array_equal(np.sort(now.class_id), np.sort(then.class_id)):
        return True
    if not len(now):
        return False
    is_equal = (now.xyxy[:, None] == then.xyxy[None]).all(axis=2)  # also of boxes without area, whose IoU is 0
    iou = np.where(is_equal, 1.0, iou_matrix(now.xyxy, then.xyxy))
    overlap = np.where(now.class_id[:, None] == then.class_id[None, :], iou, 0.0)
    return bool(overlap.max(axis=1).min() < SAME_BOX_IOU or overlap.max(axis=0).min() < SAME_BOX_IOU)


@dataclass
class FramePublisher:
    """Publishes those frame results that `selection` wants; only these are numbered, from 1. Used by one thread."""

    publisher: Publisher
    info: RunInfo
    selection: Selection
    _: KW_ONLY
    is_synced: Callable[[], bool | None] = is_clock_synced
    now_ns: Callable[[], int] = time.monotonic_ns

    def __post_init__(self) -> None:
        self._last: Counter[StreamId] = Counter()

    def publish(self, result: FrameResult) -> bool:
        """Return whether the result was wanted."""
        stream = result.header.stream
        if not self.selection.wants(stream, result.detections, now_ns=self.now_ns()):
            return False
        self._last[stream] += 1
        self.publisher.publish(FrameMessage(result, info=self.info, seq=self._last[stream], is_synced=self.is_synced()))
        return True
