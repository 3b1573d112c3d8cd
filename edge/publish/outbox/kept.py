"""An outbox's messages in a ring that outlives the process: how they get in, and how the next start finds them."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, InfoMessage
from edge.publish.outbox.entry import Entry
from edge.publish.outbox.losses import Losses
from edge.publish.outbox.records import Maker, SeqKey, entry_of, lies_as, maker_of, open_gaps, record_head, seq_key_of
from edge.publish.outbox.ring import RecoveredRing, Ring, RingError, RingSlot

__all__ = ["Kept", "Left", "open_kept"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier process has left: entries in their order, and records of what it had let go.

    Attributes:
        epoch: of that process; None where nothing is known of one.
        is_damaged: whether some of it could not be read, which is declared in `gaps`.
    """

    entries: Sequence[Entry] = ()
    gaps: Sequence[GapMessage] = ()
    epoch: int | None = None
    is_damaged: bool = False


class _Notes(msgspec.Struct, frozen=True):
    about: Maker
    gaps: list[GapMessage]


class Kept:
    """Keeps entries in a ring, and beside them the gap records that are not delivered yet."""

    def __init__(self, ring: Ring, *, info: InfoMessage) -> None:
        self._ring = ring
        self._given_up: list[RingSlot] = []
        self._maker = maker_of(info)
        self._about = msgspec.json.encode(self._maker)
        self.note(())

    def store(self, entry: Entry, ticket: int) -> Entry | None:
        """Return the entry as it lies in the ring; None while there is no room. Tickets have to grow.

        A frame is kept packed, anything else as its payload. One that is larger than the ring's parts stays in memory;
        its number is kept, so that a loss is declared.
        """
        head, content, is_packed = lies_as(entry, self._maker)
        slot = self._ring.append(head, content, ticket)
        if slot is None and self._ring.could_hold(len(head) + len(content)):
            return None
        if slot is None:
            slot = self._ring.append(record_head(entry, is_packed=False), b"", ticket)
            return None if slot is None else msgspec.structs.replace(entry, slot=slot, ticket=ticket)
        if entry.was_sent:
            slot.mark_sent()
        read = functools.partial(self._payload_in, slot) if is_packed else slot.read
        return msgspec.structs.replace(
            entry, encode=read, size_bytes=len(content), slot=slot, frame=None, ticket=ticket
        )

    def _payload_in(self, slot: RingSlot) -> bytes:
        """Return the payload of a packed frame in the ring."""
        return self._maker.frame(slot.read()).encode()

    def give_up(self, slot: RingSlot) -> None:
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


def open_kept(path: Path, max_bytes: int, *, info: InfoMessage, saved: Container[int] = ()) -> tuple[Kept | None, Left]:
    """Return a ring at `path` that holds what an earlier process left there, and what that is.

    `saved` are tickets of messages that lie elsewhere, too: where there is no room they go from here without a word.

    A damaged one is set aside beside it, and what cannot be read is declared. Without room, or while another process
    uses it, there is none: logged, and no error.
    """
    found: RecoveredRing | None = None
    try:
        found = RecoveredRing(path) if path.exists() else None
        ring = Ring.create(path.with_name(f".{path.name}.new"), max_bytes)
    except (OSError, RingError) as error:
        _log.warning("messages are not kept over a restart path=%s error=%s", path, error)
        return None, Left() if found is None else _left(found, info)
    kept = Kept(ring, info=info)
    left = Left() if found is None else _moved(_left(found, info), kept, info, saved)
    if found is not None and found.is_damaged:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        _log.error("messages of the last run are damaged path=%s: set aside, and declared as a gap", aside)
    kept.commit(gap.encode() for gap in left.gaps)
    path.with_name(f".{path.name}.new").replace(path)
    if left.entries or left.gaps:
        _log.info("messages of the last run are sent now count=%d gaps=%d", len(left.entries), len(left.gaps))
    return kept, left


def _moved(left: Left, kept: Kept, info: InfoMessage, saved: Container[int]) -> Left:
    """Return what lies in the new ring now; where that has less room the oldest are let go, and declared."""
    losses = Losses(device=info.device)
    moved: deque[Entry] = deque()
    for entry in left.entries:
        while (stored := kept.store(entry, entry.ticket)) is None and moved:
            oldest = moved.popleft()
            if oldest.number is not None and oldest.ticket not in saved:
                losses.add(oldest, "spool-bytes")
            if oldest.slot is not None:
                oldest.slot.settle()
        moved.append(stored or entry)
    let_go = [_gap_decoder.decode(payload) for payload in losses.payloads()]
    return Left(moved, [*left.gaps, *let_go], left.epoch, left.is_damaged)


def _left(found: RecoveredRing, info: InfoMessage) -> Left:
    notes = _read_notes(found.notes)
    maker = None if notes is None else notes.about
    gaps = [] if notes is None else list(notes.gaps)
    declared: dict[SeqKey, list[GapMessage]] = defaultdict(list)
    for gap in gaps:
        declared[gap.stream, gap.epoch, gap.of].append(gap)
    entries = [entry_of(one.head, one.payload, maker, was_sent=one.was_sent, ticket=one.order) for one in found.records]
    whole = [one for one in entries if one is not None and not _is_in(one, declared)]
    gaps += [_gap_of(one, info) for one in whole if not one.size_bytes and one.number is not None]
    is_damaged = found.is_damaged or notes is None or None in entries
    if is_damaged:
        gaps += open_gaps(maker, info, whole)
    epoch = None if maker is None else maker.epoch
    return Left([one for one in whole if one.size_bytes], gaps, epoch, is_damaged)


def _is_in(entry: Entry, declared: Mapping[SeqKey, Sequence[GapMessage]]) -> bool:
    number = entry.number
    if number is None:
        return False
    gaps = declared.get(seq_key_of(number), ())
    return any(gap.to is not None and gap.exact and gap.from_ <= number.seq <= gap.to for gap in gaps)


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
