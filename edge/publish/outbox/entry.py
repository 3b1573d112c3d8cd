"""What a publisher keeps of a message: how to get its payload, and what its delivery needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from edge.protocols import TopicMessage
from edge.publish.discovery.home_assistant import Announcement
from edge.publish.frame import FrameMessage
from edge.publish.message import WireMessage
from edge.publish.messages import (
    DetectionsMessage,
    EventMessage,
    GapMessage,
    GapReason,
    NumberedKind,
    StreamStateMessage,
    replayed_payload,
)
from edge.publish.outbox.ring import RingSlot

__all__ = ["Entry", "GapRun", "Number", "entry_from_message", "late", "replay_of"]

# What one entry costs in memory besides payload and topic (CPython 3.11, measured and rounded up).
_OVERHEAD_BYTES = 400
_LIVE, _REPLAY = "/detections", "/replay"
_GAP_SCHEMA = "edge.gap/1"


class Number(msgspec.Struct, frozen=True, gc=False):
    """The identity of a numbered message, and when its frame was captured (for the gap record, should it be lost)."""

    stream: str
    epoch: int
    seq: int
    captured_at: str
    of: NumberedKind = "detections"


class Entry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message on its way; two entries are never equal.

    `encode` gives the payload, always the same, and is called by the sending thread. `schema` is empty for messages
    that are not ours. `is_absolute` says that `topic` is not below the device. `gap_count` is how many numbers a gap
    record declares. `was_sent` says that it was on its way when a connection was lost, so that the broker may have it.
    `is_replay` says that it is late and goes to the topic of late ones. `accepted_at_s` is seconds of `time.monotonic`.
    `slot` is where it lies in a ring, if it does. `ticket` grows in the order of acceptance, over restarts, too; 0
    where nobody counts. `frame` is what `encode` makes the payload of, as long as it is not there. `behind` is the
    stream of which a retained one is the last word: not sent before the numbered messages that it comes after.
    """

    topic: str
    encode: Callable[[], bytes]
    size_bytes: int
    schema: str = ""
    is_retained: bool = False
    is_absolute: bool = False
    gap_count: int = 0
    expiry_s: int | None = None
    number: Number | None = None
    was_sent: bool = False
    is_replay: bool = False
    accepted_at_s: float = msgspec.field(default_factory=time.monotonic)
    slot: RingSlot | None = None
    frame: FrameMessage | None = None
    ticket: int = 0
    behind: str | None = None

    @property
    def is_gap(self) -> bool:
        """Whether it is a gap record."""
        return self.schema == _GAP_SCHEMA

    @property
    def is_event(self) -> bool:
        """Whether it is numbered as an event."""
        return self.number is not None and self.number.of == "events"

    @property
    def may_be_replayed(self) -> bool:
        """Whether it goes to another topic once it is late."""
        return self.number is not None and self.topic.endswith(_LIVE) and not self.is_replay

    def full_topic(self, root: str) -> str:
        """Return the topic at the broker, where `root` is the device's own level."""
        return self.topic if self.is_absolute else f"{root}/{self.topic}"

    @property
    def cost_bytes(self) -> int:
        """Memory that it takes while it waits."""
        return self.size_bytes + len(self.topic) + _OVERHEAD_BYTES


def entry_from_message(message: TopicMessage) -> Entry:
    """Return the entry of a message; frames are encoded when they are sent, everything else now."""
    if isinstance(message, FrameMessage):
        return Entry(
            topic=message.topic,
            encode=message.encode,
            size_bytes=message.size_bytes,
            schema=message.schema,
            expiry_s=message.expiry_s,
            number=Number(message.stream, message.epoch, message.seq, message.captured_at),
            frame=message,
        )
    payload = message.encode()
    number = None
    if isinstance(message, DetectionsMessage):
        number = Number(message.stream, message.epoch, message.seq, message.captured_at)
    elif isinstance(message, EventMessage):
        number = Number(message.stream, message.epoch, message.seq, message.captured_at, of="events")
    return Entry(
        topic=message.topic,
        encode=lambda: payload,
        size_bytes=len(payload),
        schema=message.schema if isinstance(message, WireMessage) else "",
        is_retained=message.is_retained,
        is_absolute=isinstance(message, Announcement),
        gap_count=message.count or 0 if isinstance(message, GapMessage) else 0,
        expiry_s=message.expiry_s,
        number=number,
        behind=message.stream if isinstance(message, StreamStateMessage) and message.state == "ended" else None,
    )


def replay_of(entry: Entry) -> Entry:
    """Return a late entry as it is sent: its topic and payload say so, and it does not expire."""
    encode = entry.encode
    return msgspec.structs.replace(
        entry,
        topic=entry.topic.removesuffix(_LIVE) + _REPLAY,
        encode=lambda: replayed_payload(encode()),
        expiry_s=None,
        is_replay=True,
    )


def late(entry: Entry) -> Entry:
    """Return an entry of an earlier time as it is sent now."""
    return replay_of(entry) if entry.may_be_replayed else entry


@dataclass(slots=True)
class GapRun:
    """Neighbouring numbers of one kind and stream that were let go for one reason; grows until it is sent."""

    reason: GapReason
    first: Number
    last: Number
    count: int = 1
    is_exact: bool = True

    def takes(self, number: Number, reason: GapReason, *, is_exact: bool, is_contiguous_only: bool) -> bool:
        """Add `number` if it belongs here; otherwise it needs a run of its own."""
        if reason != self.reason or number.epoch != self.last.epoch or number.seq <= self.last.seq:
            return False
        is_next = number.seq == self.last.seq + 1 and is_exact == self.is_exact
        if is_contiguous_only and not is_next:
            return False
        self.is_exact = self.is_exact and is_next
        self.last = number
        self.count += 1
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
            of=self.first.of,
        )
