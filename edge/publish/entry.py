"""What a publisher keeps of a message: how to get its payload, and what its delivery needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge.protocols import Message
from edge.publish.frame import FrameMessage
from edge.publish.messages import DetectionsMessage, GapMessage, GapReason, WireMessage

__all__ = ["Entry", "GapRun", "Number", "entry_from_message"]

# What one entry costs in memory besides payload and topic (CPython 3.11, measured and rounded up).
_OVERHEAD_BYTES = 400


@dataclass(frozen=True, slots=True)
class Number:
    """The identity of a numbered message, and when its frame was captured (for the gap record, should it be lost)."""

    stream: str
    epoch: int
    seq: int
    captured_at: str


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One message on its way; two entries are never equal.

    `encode` gives the payload, always the same, and is called by the sending thread. `schema` is empty for messages
    that are not ours. `gap_count` is how many numbers a gap record declares.
    """

    topic: str
    encode: Callable[[], bytes]
    size_bytes: int
    schema: str = ""
    is_retained: bool = False
    gap_count: int = 0
    expiry_s: int | None = None
    number: Number | None = None

    @property
    def cost_bytes(self) -> int:
        """Memory that it takes while it waits."""
        return self.size_bytes + len(self.topic) + _OVERHEAD_BYTES


def entry_from_message(message: Message) -> Entry:
    """Return the entry of a message; frames are encoded when they are sent, everything else now."""
    if isinstance(message, FrameMessage):
        return Entry(
            topic=message.topic,
            encode=message.encode,
            size_bytes=message.size_bytes,
            schema=message.schema,
            expiry_s=message.expiry_s,
            number=Number(message.stream, message.epoch, message.seq, message.captured_at),
        )
    payload = message.encode()
    number = None
    if isinstance(message, DetectionsMessage):
        number = Number(message.stream, message.epoch, message.seq, message.captured_at)
    return Entry(
        topic=message.topic,
        encode=lambda: payload,
        size_bytes=len(payload),
        schema=message.schema if isinstance(message, WireMessage) else "",
        is_retained=message.is_retained,
        gap_count=message.count or 0 if isinstance(message, GapMessage) else 0,
        expiry_s=message.expiry_s,
        number=number,
    )


@dataclass(slots=True)
class GapRun:
    """Neighbouring numbers of one stream that were let go for one reason; grows until it is sent."""

    reason: GapReason
    first: Number
    last: Number
    count: int = 1
    is_exact: bool = True

    def takes(self, number: Number, reason: GapReason, *, is_contiguous_only: bool) -> bool:
        """Add `number` if it belongs here; otherwise it needs a run of its own."""
        if reason != self.reason or number.epoch != self.last.epoch:
            return False
        is_contiguous = number.seq == self.last.seq + 1
        if not is_contiguous and (is_contiguous_only or number.seq < self.last.seq):
            return False
        self.last = number
        self.count += 1
        self.is_exact = self.is_exact and is_contiguous
        return True

    def message(self, device: str) -> GapMessage:
        """Return the record that consumers read."""
        return GapMessage(
            device=device,
            stream=self.first.stream,
            epoch=self.first.epoch,
            from_=self.first.seq,
            to=self.last.seq,
            count=self.count,
            reason=self.reason,
            first_at=self.first.captured_at,
            last_at=self.last.captured_at,
            exact=self.is_exact,
        )
