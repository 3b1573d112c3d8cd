"""A frame result on its way to be a detections message: numbered now, converted and encoded by the sending thread."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from edge.publish.convert import detections_message, rfc3339_from_ns
from edge.publish.message import ModelInfo
from edge.publish.messages import LIVE_EXPIRY_S
from edge.types import Detections, FrameHeader, FrameResult, StageTimes

__all__ = ["FrameMessage", "frame_from_packed"]

# The payload without detections, and what each of them adds; measured with labels of usual length.
_BASE_BYTES = 520
_OBJECT_BYTES = 90


class _Packed(msgspec.Struct, array_like=True, kw_only=True):
    """What a frame message is made of; the arrays as their bytes, little-endian."""

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


class FrameMessage:
    """A `TopicMessage` that is cheap to make in the pipeline's thread; it keeps the result, whose arrays are its own.

    It is converted and encoded at the first `encode`, which the sending thread calls while the pipeline's thread waits
    for the engine; frames that are let go are never converted.
    """

    __slots__ = (
        "_captured_at_ns",
        "_count",
        "_labels",
        "_model",
        "_payload",
        "_result",
        "_synced",
        "device",
        "epoch",
        "seq",
        "stream",
    )

    schema = "edge.detections/1"
    is_retained = False
    expiry_s = LIVE_EXPIRY_S

    def __init__(
        self,
        result: FrameResult,
        *,
        device: str,
        epoch: int,
        seq: int,
        labels: Sequence[str],
        model: ModelInfo,
        is_synced: bool | None = None,
    ) -> None:
        self.device = device
        self.stream = result.header.stream
        self.epoch = epoch
        self.seq = seq
        self._result: FrameResult | None = result
        self._labels = labels
        self._model = model
        self._synced = is_synced
        self._payload = b""
        self._count = len(result.detections)
        self._captured_at_ns = result.header.captured_at_ns

    @property
    def topic(self) -> str:
        """Topic below the device's own level."""
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
        return self.device == device and self._model == model and (self._labels is labels or self._labels == labels)

    def pack(self) -> bytes | None:
        """Return all that is this frame's own, at a quarter of the cost of `encode`; None after that was called."""
        result = self._result
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
                synced=self._synced,
            )
        )

    def encode(self) -> bytes:
        """Return the JSON text; two threads may ask at once."""
        result = self._result
        if result is None:
            return self._payload
        message = detections_message(
            result,
            device=self.device,
            epoch=self.epoch,
            seq=self.seq,
            labels=self._labels,
            model=self._model,
            is_synced=self._synced,
        )
        payload = message.encode()
        self._payload = payload  # before the result goes: whoever finds none finds this
        self._result = None
        return payload


def frame_from_packed(packed: bytes, *, device: str, labels: Sequence[str], model: ModelInfo) -> FrameMessage:
    """Return the message whose `pack` gave these bytes.

    Raises:
        ValueError: when that is not what they are.
    """
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
