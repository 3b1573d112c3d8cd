"""Queued message: its payload, the needs of its delivery, its row in the store.

In the store a message is a head, and a body that is its payload or a packed frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, get_args

import msgspec

from edge.protocols import TopicMessage
from edge.publish.frames import FrameMessage, frame_from_packed
from edge.publish.message import RetainedBytes, RunInfo, WireMessage
from edge.publish.messages import (
    DetectionsMessage,
    EventMessage,
    GapMessage,
    NumberedKind,
    StreamStateMessage,
    recovered_payload,
    replayed_payload,
)

__all__ = [
    "KINDS",
    "Entry",
    "Number",
    "SeqKey",
    "entry_from_message",
    "entry_of",
    "late",
    "lies_as",
    "live_topic_of",
    "made_by",
    "replay_of",
]

# What one entry costs in memory besides payload and topic (CPython 3.11, measured and rounded up).
_OVERHEAD_BYTES = 400
_LIVE, _REPLAY = "/detections", "/replay"
_BESIDE = "../"
_GAP_SCHEMA = "edge.gap/1"


SeqKey: TypeAlias = tuple[str, int, NumberedKind]  # stream, epoch, kind
KINDS: tuple[NumberedKind, ...] = get_args(NumberedKind)


class Number(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The identity of a numbered message, and when its frame was captured (for the gap record, should it be lost)."""

    stream: str
    epoch: int
    seq: int
    captured_at: str
    of: NumberedKind = "detections"

    @property
    def account(self) -> SeqKey:
        return self.stream, self.epoch, self.of


class Entry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message on its way; two entries are never equal.

    `encode` gives the payload, always the same, and is called by the sending thread. `schema` is empty for messages
    that are not ours. `is_absolute` says that `topic` is not below the device; one of an earlier name of the device
    begins with `../NAME/`. `gap_count` is how many numbers a gap record declares. `was_sent` says that it was on its
    way when a connection was lost, so that the broker may have it. `is_replay` says that it is late and goes to the
    topic of late ones. `accepted_at_s` is seconds of `time.monotonic`. `ticket` grows in the order of acceptance, over
    restarts, too; 0 before it has one. `frame` is what `encode` makes the payload of, as long as it is not there.
    `behind` is the stream of which a retained one is the last word: not sent before the numbered messages that it comes
    after. `is_settled` says of a retained one that it was counted as delivered, and is only sent again.
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
    frame: FrameMessage | None = None
    ticket: int = 0
    behind: str | None = None
    is_settled: bool = False

    @property
    def is_gap(self) -> bool:
        return self.schema == _GAP_SCHEMA

    @property
    def is_event(self) -> bool:
        return self.number is not None and self.number.of == "events"

    @property
    def may_be_replayed(self) -> bool:
        """Whether it goes to another topic once it is late."""
        return self.number is not None and self.topic.endswith(_LIVE) and not self.is_replay

    def full_topic(self, root: str) -> str:
        """`root` is the device's own level."""
        if self.topic.startswith(_BESIDE):
            root = root.rpartition("/")[0]
        return self.topic if self.is_absolute else f"{root}/{self.topic.removeprefix(_BESIDE)}"

    def device(self, own: str) -> str:
        """Return the name that the device had when it made this; `own` is that of now."""
        return self.topic.split("/")[1] if self.topic.startswith(_BESIDE) else own

    @property
    def cost_bytes(self) -> int:
        """Memory that it takes while it waits."""
        return self.size_bytes + len(self.topic) + _OVERHEAD_BYTES


def entry_from_message(message: TopicMessage) -> Entry:
    """Return the entry of a message; frames are encoded when they are sent, everything else now."""
    frame = message if isinstance(message, FrameMessage) else None
    payload = b"" if frame is not None else message.encode()
    number = None
    if isinstance(message, FrameMessage | DetectionsMessage | EventMessage):
        number = Number(message.stream, message.epoch, message.seq, message.captured_at, message.of)
    return Entry(
        topic=message.topic,
        encode=(lambda: payload) if frame is None else frame.encode,
        size_bytes=len(payload) if frame is None else frame.size_bytes,
        schema=message.schema if isinstance(message, WireMessage | FrameMessage) else "",
        is_retained=message.is_retained,
        is_absolute=isinstance(message, RetainedBytes) and message.is_absolute,
        gap_count=message.count or 0 if isinstance(message, GapMessage) else 0,
        expiry_s=message.expiry_s,
        number=number,
        frame=frame,
        behind=message.stream if isinstance(message, StreamStateMessage) and message.state == "ended" else None,
    )


def made_by(device: str, entry: Entry, *, own: str) -> Entry:
    """Return an entry of an earlier start, which goes below the name that the device had then."""
    if device == own or entry.topic.startswith(_BESIDE):
        return entry
    return msgspec.structs.replace(entry, topic=f"{_BESIDE}{device}/{entry.topic}")


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


def live_topic_of(entry: Entry) -> str:
    return entry.topic.removesuffix(_REPLAY) + _LIVE


def late(entry: Entry, *, is_recovered: bool) -> Entry:
    """Return an entry of an earlier time as it is sent now; `is_recovered`: a later start has found it on the disk."""
    entry = replay_of(entry) if entry.may_be_replayed else entry
    if not is_recovered:
        return entry
    encode = entry.encode
    return msgspec.structs.replace(entry, encode=lambda: recovered_payload(encode()), frame=None)


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Head of a stored message, beside its payload or packed frame."""

    is_packed: bool
    topic: str
    schema: str
    number: Number


_head_packer = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)


def lies_as(entry: Entry, info: RunInfo) -> tuple[bytes, bytes]:
    """Return head and body of a numbered entry; a packed frame takes `info` to be read."""
    frame, number = entry.frame, entry.number
    assert number is not None
    packed = frame.pack() if frame is not None and frame.info == info else None
    head = _head_packer.encode(_Head(packed is not None, entry.topic, entry.schema, number))
    return head, entry.encode() if packed is None else packed


def entry_of(head: bytes, body: bytes, info: RunInfo | None, *, was_sent: bool, ticket: int) -> Entry:
    """Return the entry that lies so; raises ValueError where that cannot be read."""
    lies = _head_decoder.decode(head)
    frame: FrameMessage | None = None
    if lies.is_packed:
        if info is None:
            raise ValueError("the start that packed it is not known")
        frame = frame_from_packed(body, info)
    topic = lies.topic if frame is None else frame.topic  # that of its payload, also where it was written late
    return Entry(
        topic=topic,
        encode=(lambda: body) if frame is None else frame.encode,
        size_bytes=len(body),
        schema=lies.schema,
        number=lies.number,
        was_sent=was_sent,
        is_replay=topic.endswith(_REPLAY),
        frame=frame,
        ticket=ticket,
    )
