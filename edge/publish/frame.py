"""A frame result on its way to be a detections message: numbered now, converted and encoded by the sending thread."""

from __future__ import annotations

from collections.abc import Sequence

from edge.publish.convert import detections_message, rfc3339_from_ns
from edge.publish.messages import LIVE_EXPIRY_S, ModelInfo
from edge.types import FrameResult

__all__ = ["FrameMessage"]

# The payload without detections, and what each of them adds; measured with labels of usual length.
_BASE_BYTES = 520
_OBJECT_BYTES = 90


class FrameMessage:
    """A `Message` that is cheap to make in the pipeline's thread; it keeps the result, whose arrays are its own.

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
