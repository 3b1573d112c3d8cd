"""An outbox's messages in a ring that outlives the process: how they get in, and how the next start finds them."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec

from edge.publish.frame import FrameMessage, frame_from_packed
from edge.publish.messages import GapMessage, InfoMessage, ModelInfo, NumberedKind
from edge.publish.outbox.entry import Entry, Number
from edge.publish.outbox.losses import Losses
from edge.publish.outbox.ring import Found, Record, Ring, RingError, Slot

__all__ = ["Kept", "Left", "open_kept"]

_Account: TypeAlias = tuple[str, int, NumberedKind]

_KINDS: tuple[NumberedKind, ...] = get_args(NumberedKind)


_log = logging.getLogger(__name__)


_PLAIN, _PACKED = "plain", "frame"


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier process has left: entries in their order, and records of what it had let go."""

    entries: Sequence[Entry] = ()
    gaps: Sequence[GapMessage] = ()


class _Maker(msgspec.Struct, frozen=True):
    """What all packed frames of one start have in common."""

    epoch: int
    streams: list[str]
    device: str
    labels: list[str]
    model: ModelInfo

    def frame(self, packed: bytes) -> FrameMessage:
        """Return one of them."""
        return frame_from_packed(packed, device=self.device, labels=self.labels, model=self.model)

    def payload_in(self, slot: Slot) -> bytes:
        """Return the payload of a frame in the ring."""
        return self.frame(slot.read()).encode()


class _Notes(msgspec.Struct, frozen=True):
    about: _Maker
    gaps: list[GapMessage]


class Kept:
    """Keeps entries in a ring, and beside them the gap records that are not delivered yet."""

    def __init__(self, ring: Ring, *, info: InfoMessage) -> None:
        self._ring = ring
        self._given_up: list[Slot] = []
        self._maker = _Maker(
            epoch=info.epoch, streams=info.streams, device=info.device, labels=info.labels, model=info.model
        )
        self._about = msgspec.json.encode(self._maker)
        self.note(())

    def store(self, entry: Entry) -> Entry | None:
        """Return the entry as it lies in the ring; None while there is no room.

        A frame is kept packed, anything else as its payload. One that is larger than the ring's parts stays in memory;
        its number is kept, so that a loss is declared.
        """
        packed = self._packed(entry)
        content = entry.encode() if packed is None else packed
        head = _head(entry, is_packed=packed is not None)
        slot = self._ring.append(head, content)
        if slot is None and self._ring.could_hold(len(head) + len(content)):
            return None
        if slot is None:
            slot = self._ring.append(_head(entry, is_packed=False), b"")
            return None if slot is None else msgspec.structs.replace(entry, slot=slot)
        if entry.was_sent:
            slot.mark_sent()
        read = slot.read if packed is None else functools.partial(self._maker.payload_in, slot)
        return msgspec.structs.replace(entry, encode=read, size_bytes=len(content), slot=slot, frame=None)

    def _packed(self, entry: Entry) -> bytes | None:
        frame, maker = entry.frame, self._maker
        if frame is None or not frame.is_of(device=maker.device, labels=maker.labels, model=maker.model):
            return None
        return frame.pack()

    def give_up(self, slot: Slot) -> None:
        """Let a message go; it stays until the next `commit`, which has to name it."""
        self._given_up.append(slot)

    def commit(self, gaps: Iterable[bytes]) -> None:
        """Keep what is declared, and only then free the room of what was let go."""
        self.note(gaps)
        for slot in self._given_up:
            slot.settle()
        self._given_up.clear()

    def note(self, gaps: Iterable[bytes]) -> None:
        """Keep the payloads of all gap records that wait or are on their way."""
        text = b'{"about":' + self._about + b',"gaps":[' + b",".join(gaps) + b"]}"
        if not self._ring.note(text):
            _log.error("gap records are too many to be kept over the process bytes=%d", len(text))

    def close(self) -> None:
        """Leave what is there to the next start."""
        self._ring.close()


_decoder = msgspec.json.Decoder(_Notes)
_gap_decoder = msgspec.json.Decoder(GapMessage)


def open_kept(path: Path, max_bytes: int, *, info: InfoMessage) -> tuple[Kept | None, Left]:
    """Return a ring at `path` that holds what an earlier process left there, and what that is.

    A damaged one is set aside beside it, and what cannot be read is declared. Without room, or while another process
    uses it, there is none: logged, and no error.
    """
    found: Found | None = None
    try:
        found = Found(path) if path.exists() else None
        ring = Ring.create(path.with_name(f".{path.name}.new"), max_bytes)
    except (OSError, RingError) as error:
        _log.warning("messages are not kept over a restart path=%s error=%s", path, error)
        return None, Left() if found is None else _left(found, info)
    kept = Kept(ring, info=info)
    left = Left() if found is None else _moved(_left(found, info), kept, info)
    if found is not None and found.is_damaged:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        _log.error("messages of the last run are damaged path=%s: set aside, and declared as a gap", aside)
    kept.commit(gap.encode() for gap in left.gaps)
    path.with_name(f".{path.name}.new").replace(path)
    if left.entries or left.gaps:
        _log.info("messages of the last run are sent now count=%d gaps=%d", len(left.entries), len(left.gaps))
    return kept, left


def _moved(left: Left, kept: Kept, info: InfoMessage) -> Left:
    """Return what lies in the new ring now; where that has less room the oldest are let go, and declared."""
    losses = Losses(device=info.device)
    moved: deque[Entry] = deque()
    for entry in left.entries:
        while (stored := kept.store(entry)) is None and moved:
            oldest = moved.popleft()
            if oldest.number is not None:
                losses.add(oldest, "spool-bytes")
            if oldest.slot is not None:
                oldest.slot.settle()
        moved.append(stored or entry)
    let_go = [_gap_decoder.decode(payload) for payload in losses.payloads()]
    return Left(moved, [*left.gaps, *let_go])


def _head(entry: Entry, *, is_packed: bool) -> bytes:
    number = entry.number
    fields = [_PACKED if is_packed else _PLAIN, entry.topic, entry.schema]
    if number is not None:
        fields += [number.stream, str(number.epoch), str(number.seq), number.captured_at, number.of]
    return "\0".join(fields).encode()


def _left(found: Found, info: InfoMessage) -> Left:
    notes = _read_notes(found.notes)
    maker = None if notes is None else notes.about
    gaps = [] if notes is None else list(notes.gaps)
    declared: dict[_Account, list[GapMessage]] = defaultdict(list)
    for gap in gaps:
        declared[gap.stream, gap.epoch, gap.of].append(gap)
    entries = [_entry(record, maker) for record in found.records]
    whole = [one for one in entries if one is not None and not _is_in(one, declared)]
    gaps += [_gap_of(one, info) for one in whole if not one.size_bytes and one.number is not None]
    if found.is_damaged or notes is None or None in entries:
        gaps += _open_gaps(maker, info, whole)
    return Left([one for one in whole if one.size_bytes], gaps)


def _is_in(entry: Entry, declared: Mapping[_Account, Sequence[GapMessage]]) -> bool:
    number = entry.number
    if number is None:
        return False
    gaps = declared.get((number.stream, number.epoch, number.of), ())
    return any(gap.to is not None and gap.exact and gap.from_ <= number.seq <= gap.to for gap in gaps)


def _entry(record: Record, maker: _Maker | None) -> Entry | None:
    try:
        form, topic, schema, *rest = record.head.decode().split("\0")
        number = None
        if rest:
            stream, epoch, seq, captured_at, of = rest
            number = Number(stream, int(epoch), int(seq), captured_at, msgspec.convert(of, NumberedKind))
        frame = None if form == _PLAIN else _frame(form, record.payload, maker)
    except (ValueError, msgspec.DecodeError):
        return None
    payload = record.payload
    return Entry(
        topic=topic,
        encode=(lambda: payload) if frame is None else frame.encode,
        size_bytes=len(payload),
        schema=schema,
        number=number,
        was_sent=record.was_sent,
        frame=frame,
    )


def _frame(form: str, packed: bytes, maker: _Maker | None) -> FrameMessage:
    if form != _PACKED or maker is None:
        raise ValueError(f"expected {_PLAIN}, or {_PACKED} and what made it, got {form!r}")
    return maker.frame(packed)


def _read_notes(text: bytes) -> _Notes | None:
    """Return what the process that wrote them said of itself, and the gap records that it had not delivered."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None


def _gap_of(entry: Entry, info: InfoMessage) -> GapMessage:
    number = entry.number
    assert number is not None
    return GapMessage(
        device=info.device,
        stream=number.stream,
        epoch=number.epoch,
        from_=number.seq,
        to=number.seq,
        count=1,
        reason="oversize",
        first_at=number.captured_at,
        last_at=number.captured_at,
        exact=not entry.was_sent,
        of=number.of,
    )


def _open_gaps(maker: _Maker | None, info: InfoMessage, whole: Sequence[Entry]) -> list[GapMessage]:
    """Return that any number of the last run may be missing, for each of its streams."""
    last = max(1, info.epoch - 1) if maker is None else maker.epoch
    accounts: set[_Account] = {(one.stream, one.epoch, one.of) for entry in whole if (one := entry.number) is not None}
    accounts |= {(one, last, of) for one in (info if maker is None else maker).streams for of in _KINDS}
    return [
        GapMessage(
            device=info.device,
            stream=stream,
            epoch=number,
            from_=1,
            to=None,
            count=None,
            reason="spool-corrupt",
            exact=False,
            of=of,
        )
        for stream, number, of in sorted(accounts)
    ]
