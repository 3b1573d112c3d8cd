"""The two places of the store in a start of the service, and what starts have said in them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import msgspec

from edge.publish.message import RunInfo
from edge.publish.messages import GapMessage, GapReason, NumberedKind
from edge.publish.outbox.message import KINDS, Entry, SeqKey, entry_of, made_by
from edge.publish.outbox.store import (
    Place,
    PlaceDamagedError,
    PlaceUnusableError,
    Row,
    Store,
    StoreError,
    remove,
)

__all__ = ["Places", "RunningClock", "Said", "open_gaps", "said_in"]


class RunningClock:
    """Seconds that the service has run, over all starts; no clock that is set has a part in it.

    A wall clock may be wrong by years until a time server answers: by it a message of a minute ago may be too old.
    """

    def __init__(self, newest_s: float) -> None:
        self._offset_s = newest_s - time.monotonic()

    def at_s(self, monotonic_s: float) -> float:
        return monotonic_s + self._offset_s

    def monotonic_s(self, at_s: float) -> float:
        """A moment before the clock began is negative."""
        return at_s - self._offset_s

    def age_s(self, at_s: float) -> float:
        return max(0.0, time.monotonic() - self.monotonic_s(at_s))


class Said(msgspec.Struct, frozen=True):
    """Record of a start: how far each account is kept, and when that was, in the store's time. `is_ended`: nothing of
    it is left to be declared.
    """

    maker: RunInfo
    reached: list[tuple[str, NumberedKind, int]] = []
    is_ended: bool = True
    at_s: float = 0.0


_said_decoder = msgspec.json.Decoder(Said)


def said_in(place: Place) -> dict[int, Said]:
    """Return the words of starts by their epochs."""
    try:
        return {epoch: _said_decoder.decode(payload) for epoch, payload in place.starts()}
    except msgspec.MsgspecError as error:
        raise PlaceDamagedError(f"expected what a start says of itself: {error}", place) from error


def open_gaps(
    maker: RunInfo, *, reason: GapReason, after: Iterable[tuple[str, NumberedKind, int]] = ()
) -> Iterator[GapMessage]:
    """Yield that any number of a start may be missing, `after` those of each account."""
    known = {(stream, of): seq for stream, of, seq in after}
    for stream in dict.fromkeys([*maker.streams, *(stream for stream, _ in known)]):
        for of in KINDS:
            yield GapMessage(
                device=maker.device,
                stream=stream,
                epoch=maker.epoch,
                from_=known.get((stream, of), 0) + 1,
                to=None,
                count=None,
                reason=reason,
                exact=False,
                of=of,
            )


@dataclass
class Places:
    """Of the thread that writes; raises as `Place` does.

    `run` is in /run or in memory, `disk` the second place where it is open; `join` opens it and takes over what it has.
    `makers` are the starts, by epoch, of which there are messages. Rows that are named by `declared`, exact gap records
    of earlier starts, are not sent.
    """

    store: Store
    run: Place
    _: KW_ONLY
    clock: RunningClock
    maker: RunInfo
    makers: dict[int, RunInfo]
    run_path: Path | None
    disk_path: Path | None
    disk: Place | None = None
    join: Callable[[], None] = field(init=False)
    declared: list[GapMessage] = field(default_factory=list)
    has_had_disk: bool = False

    def start(self, reached: Mapping[SeqKey, int], *, is_ended: bool = False) -> dict[int, bytes]:
        accounts = [(stream, of, seq) for (stream, _, of), seq in reached.items()]
        said = Said(self.maker, accounts, is_ended, self.clock.at_s(time.monotonic()))
        return {self.maker.epoch: msgspec.json.encode(said)}

    def earlier_starts(self) -> dict[int, bytes]:
        """Return the starts before this one, as accounted for: with them others can read their messages."""
        return {one: msgspec.json.encode(Said(by)) for one, by in self.makers.items() if one != self.maker.epoch}

    def rows(self, first: int, most: int, *, is_event: bool) -> list[tuple[Row, bool]]:
        """Return rows of both places from a ticket on, in their order, each with whether it is on the disk."""
        found = {row.ticket: (row, False) for row in self.run.rows(first, most, is_event=is_event)}
        if self.disk is not None:
            found.update({row.ticket: (row, True) for row in self.disk.rows(first, most, is_event=is_event)})
        return [found[ticket] for ticket in sorted(found)[:most]]

    def entry(self, row: Row, *, was_sent: bool) -> Entry:
        was_sent = was_sent or row.start != self.maker.epoch  # which of an earlier start were is not known
        maker = self.makers.get(row.start)
        try:
            made = entry_of(row.head, row.body, maker, was_sent=was_sent, ticket=row.ticket)
        except ValueError as error:
            raise PlaceDamagedError(f"message {row.ticket} cannot be read: {error}", self.disk or self.run) from error
        made = made_by((maker or self.maker).device, made, own=self.maker.device)
        return msgspec.structs.replace(made, accepted_at_s=self.clock.monotonic_s(row.at_s))

    def is_of_earlier_start(self, entry: Entry) -> bool:
        return entry.number is not None and entry.number.epoch != self.maker.epoch

    def is_declared(self, entry: Entry) -> bool:
        """Return whether a gap record of an earlier start names a message."""
        number = entry.number
        return number is not None and any(
            (gap.stream, gap.epoch, gap.of) == number.account and gap.from_ <= number.seq <= (gap.to or 0)
            for gap in self.declared
        )

    def damage_gaps(self, reached: Mapping[SeqKey, int]) -> Iterator[GapMessage]:
        """Yield that any number of any start may be missing; those of this one end at the number that is reached."""
        for maker in self.makers.values():
            for gap in open_gaps(maker, reason="spool-corrupt"):
                last = reached.get((gap.stream, gap.epoch, gap.of), 0) if maker.epoch == self.maker.epoch else None
                if last != 0:
                    yield msgspec.structs.replace(gap, to=last)

    def move_run(self, path: Path | None) -> None:
        """Take the first place, with all that it has, to its file or to memory; where that raises, all is as before."""
        place = self.store.open(path, is_durable=False)
        try:
            place.copy_of(self.run)
        except StoreError:
            place.close()
            raise
        self.run.close()
        self.run = place
        if path is None and self.run_path is not None:
            with contextlib.suppress(PlaceUnusableError):
                remove(self.run_path)

    def leave_run(self) -> None:
        """Go on in memory, without what was in the first place."""
        self.run.close()
        self.run = self.store.open(None, is_durable=False)
        self.run.commit(starts=self.earlier_starts())

    def leave_disk(self) -> None:
        if self.disk is not None:
            self.disk.close()
            self.disk = None
