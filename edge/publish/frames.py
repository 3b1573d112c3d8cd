"""From frame results to messages: selected and numbered in the pipeline, converted and encoded by what sends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import msgspec
import numpy as np

from edge.protocols import Publisher
from edge.publish.convert import detections_message, is_clock_synced, rfc3339_from_ns
from edge.publish.message import ModelInfo
from edge.publish.messages import LIVE_EXPIRY_S
from edge.publish.numbering import Numbering
from edge.publish.selection import Selection
from edge.types import Detections, FrameHeader, FrameResult, StageTimes, StreamId

__all__ = ["FrameMessage", "FramePublisher", "frame_from_packed"]

# The payload without detections, and what each of them adds; measured with labels of usual length.
_BASE_BYTES = 540
_OBJECT_BYTES = 90


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
    for the engine; frames that are let go are never converted. `result` is None from then on.
    """

    schema: ClassVar[str] = "edge.detections/1"
    is_retained: ClassVar[bool] = False
    expiry_s: ClassVar[int] = LIVE_EXPIRY_S
    result: FrameResult | None
    _: KW_ONLY
    device: str
    epoch: int
    seq: int
    labels: Sequence[str]
    model: ModelInfo
    is_synced: bool | None = None
    stream: StreamId = field(init=False)
    _captured_at_ns: int = field(init=False)
    _count: int = field(init=False)
    _payload: bytes = b""

    def __post_init__(self) -> None:
        assert self.result is not None
        header = self.result.header
        self.stream, self._captured_at_ns, self._count = (
            header.stream,
            header.captured_at_ns,
            len(self.result.detections),
        )

    @property
    def topic(self) -> str:
        return f"streams/{self.stream}/detections"

    @property
    def captured_at(self) -> str:
        """When the frame was captured, for the gap record should it be let go."""
        return rfc3339_from_ns(self._captured_at_ns)

    @property
    def size_bytes(self) -> int:
        """About how long the payload is, or will be."""
        return _BASE_BYTES + _OBJECT_BYTES * self._count

    def is_of(self, *, device: str, labels: Sequence[str], model: ModelInfo) -> bool:
        """Return whether these are what `frame_from_packed` needs to make the same message again."""
        return self.device == device and self.model == model and (self.labels is labels or self.labels == labels)

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
        message = detections_message(
            result,
            device=self.device,
            epoch=self.epoch,
            seq=self.seq,
            labels=self.labels,
            model=self.model,
            is_synced=self.is_synced,
        )
        payload = message.encode()
        self._payload = payload  # before the result goes: a reader that finds none finds this
        self.result = None
        return payload


def frame_from_packed(packed: bytes, *, device: str, labels: Sequence[str], model: ModelInfo) -> FrameMessage:
    """Return the message whose `pack` gave these bytes; raises ValueError where none did."""
    one = _unpacker.decode(packed)
    found = Detections(
        xyxy=np.frombuffer(one.xyxy, "<f4").reshape(-1, 4),
        score=np.frombuffer(one.score, "<f4"),
        class_id=np.frombuffer(one.class_id, "<i4"),
    )
    track_id = None if one.track_id is None else np.frombuffer(one.track_id, "<i8")
    return FrameMessage(
        FrameResult(header=one.header, detections=found, times=one.times, track_id=track_id),
        device=device,
        epoch=one.epoch,
        seq=one.seq,
        labels=labels,
        model=model,
        is_synced=one.synced,
    )


class FramePublisher:
    """Publishes those frame results that `selection` wants; only these are numbered. Used by one thread."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        device: str,
        numbering: Numbering,
        selection: Selection,
        labels: Sequence[str],
        model: ModelInfo,
        is_synced: Callable[[], bool | None] = is_clock_synced,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._publisher = publisher
        self._device = device
        self._numbering = numbering
        self._selection = selection
        self._labels = labels
        self._model = model
        self._is_synced = is_synced
        self._now_ns = now_ns

    def publish(self, result: FrameResult) -> bool:
        """Return whether the result was wanted."""
        stream = result.header.stream
        if not self._selection.wants(stream, result.detections, now_ns=self._now_ns()):
            return False
        message = FrameMessage(
            result,
            device=self._device,
            epoch=self._numbering.epoch,
            seq=self._numbering.next(stream),
            labels=self._labels,
            model=self._model,
            is_synced=self._is_synced(),
        )
        self._publisher.publish(message)
        return True
