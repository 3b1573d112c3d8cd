"""How a message lies in a ring or in a spool: a head of text, and a body that is its payload or a packed frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, get_args

import msgspec

from edge.publish.frame import FrameMessage, frame_from_packed
from edge.publish.message import ModelInfo
from edge.publish.messages import GapMessage, GapReason, InfoMessage, NumberedKind
from edge.publish.outbox.entry import Entry, Number

__all__ = [
    "KINDS",
    "Maker",
    "SeqKey",
    "entry_of",
    "lies_as",
    "maker_of",
    "open_gap",
    "open_gaps",
    "record_head",
    "seq_key_of",
]

SeqKey: TypeAlias = tuple[str, int, NumberedKind]  # stream, epoch, kind

KINDS: tuple[NumberedKind, ...] = get_args(NumberedKind)

_PLAIN, _PACKED = "plain", "frame"


class Maker(msgspec.Struct, frozen=True):
    """What all packed frames of one start have in common."""

    epoch: int
    streams: list[str]
    device: str
    labels: list[str]
    model: ModelInfo

    def frame(self, packed: bytes) -> FrameMessage:
        """Return one of them.

        Raises:
            ValueError: when that is not what the bytes are.
        """
        return frame_from_packed(packed, device=self.device, labels=self.labels, model=self.model)


def maker_of(info: InfoMessage) -> Maker:
    """Return what the packed frames of a start have in common."""
    return Maker(epoch=info.epoch, streams=info.streams, device=info.device, labels=info.labels, model=info.model)


def seq_key_of(number: Number) -> SeqKey:
    """Return what the number counts."""
    return number.stream, number.epoch, number.of


def lies_as(entry: Entry, maker: Maker) -> tuple[bytes, bytes, bool]:
    """Return head and body of an entry, and whether the body is a packed frame, which takes `maker` to be read."""
    frame = entry.frame
    is_ours = frame is not None and frame.is_of(device=maker.device, labels=maker.labels, model=maker.model)
    packed = frame.pack() if frame is not None and is_ours else None
    body = entry.encode() if packed is None else packed
    return record_head(entry, is_packed=packed is not None), body, packed is not None


def record_head(entry: Entry, *, is_packed: bool) -> bytes:
    """Return all of an entry but its payload."""
    number = entry.number
    fields = [_PACKED if is_packed else _PLAIN, entry.topic, entry.schema]
    if number is not None:
        fields += [number.stream, str(number.epoch), str(number.seq), number.captured_at, number.of]
    return "\0".join(fields).encode()


def entry_of(head: bytes, body: bytes, maker: Maker | None, *, was_sent: bool, ticket: int) -> Entry | None:
    """Return the entry that lies so; None where that cannot be read."""
    try:
        form, topic, schema, *rest = head.decode().split("\0")
        number = None
        if rest:
            stream, epoch, seq, captured_at, of = rest
            number = Number(stream, int(epoch), int(seq), captured_at, msgspec.convert(of, NumberedKind))
        frame = None if form == _PLAIN else _frame(form, body, maker)
    except (ValueError, msgspec.DecodeError):
        return None
    return Entry(
        topic=topic,
        encode=(lambda: body) if frame is None else frame.encode,
        size_bytes=len(body),
        schema=schema,
        number=number,
        was_sent=was_sent,
        frame=frame,
        ticket=ticket,
    )


def open_gap(
    account: SeqKey,
    *,
    device: str,
    reason: GapReason,
    first: int = 1,
    last: int | None = None,
    count: int | None = None,
) -> GapMessage:
    """Return that any number of an account from `first` to `last` (None: the end) may be missing."""
    stream, epoch, of = account
    return GapMessage(
        device=device,
        stream=stream,
        epoch=epoch,
        from_=first,
        to=last,
        count=None,
        reason=reason,
        exact=False,
        of=of,
    )


def open_gaps(
    maker: Maker | None, info: InfoMessage, whole: Sequence[Entry], *, reason: GapReason = "spool-corrupt"
) -> list[GapMessage]:
    """Return that any number of the last run may be missing, for each of its streams."""
    last = max(1, info.epoch - 1) if maker is None else maker.epoch
    accounts = {seq_key_of(entry.number) for entry in whole if entry.number is not None}
    accounts |= {(one, last, of) for one in (info if maker is None else maker).streams for of in KINDS}
    return [open_gap(account, device=info.device, reason=reason) for account in sorted(accounts)]


def _frame(form: str, packed: bytes, maker: Maker | None) -> FrameMessage:
    if form != _PACKED or maker is None:
        raise ValueError(f"expected {_PLAIN}, or {_PACKED} and what made it, got {form!r}")
    return maker.frame(packed)
