"""The thread that brings messages to the disk and back, and holds the bounds of the spool."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edge.publish.messages import GapReason
from edge.publish.outbox.clock import SpoolClock
from edge.publish.outbox.disk import Disk, SpoolRow
from edge.publish.outbox.entry import Entry, late
from edge.publish.outbox.file import DiskError, SpoolDamagedError
from edge.publish.outbox.spool import Spool, Written
from edge.publish.outbox.spooled import SpooledOutbox
from edge.publish.outbox.stall import StallWatch
from edge.publish.outbox.standing import SpoolStanding, reached_as_json
from edge.publish.outbox.trouble import DiskTrouble

__all__ = ["Bounds", "Keeper"]

_LOOK_S = 0.05
# A message that waits longer is on its way to the disk: it is there when it is a quarter of a second old.
_DUE_S = 0.15
_AT_ONCE = 500
_GROUP_S = 0.05  # so far apart are two writes, also where events come one by one
_TIDY_S = 0.25  # rows of what was delivered go in groups
_REACHED_S = 60.0
_RETRY_S = 5.0
_STALL_S = 3.0  # a disk that answers later holds no event back any more
_CLOSE_S = 5.0
_LOAD = 128
_LOOK_AT_BOUNDS_S = 1.0
# Shares of the bound: what frames leave to events, and what is let go at a time when it is reached.
_EVENTS_SHARE, _EVICTION_SHARE = 8, 32
_USEFUL_BYTES = 4 << 20  # a file below this is no room to work in, and nothing to give back
_ROW_BYTES = 64
_STALLED = f"the disk has not answered for {_STALL_S:.0f} s"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may lie on the disk, how old it may be, and how much of the disk is left to others."""

    max_bytes: int = 256 << 20
    max_age_s: float = 72 * 3600.0
    free_bytes: int = 1 << 30


class Keeper:
    """Writes what is due, loads what is next, lets go what is too much or too old. `tick` is one round of it.

    Whatever the disk does, it never raises: messages stay in memory then, which is told by `trouble`.

    Attributes:
        trouble: what is wrong with the disk.
        file_bytes: what the spool takes on the disk.
        oldest_s: how long ago the oldest message on the disk was accepted; 0 where there is none.
    """

    def __init__(
        self,
        outbox: SpooledOutbox,
        spool: Spool,
        standing: SpoolStanding,
        *,
        bounds: Bounds,
        on_more: Callable[[], None],
        patience_s: Callable[[], float] = lambda: 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._spool = spool
        self._standing = standing
        self._clock: SpoolClock = standing.clock
        self._path = standing.path
        self._bounds = bounds
        self._on_more = on_more
        self._patience_s = patience_s
        self._now_s = now_s
        self._wake = threading.Event()
        self._is_closing = self._is_short = False
        self._wrote_s = now_s()
        self._looked_s = self._retry_s = -1e9
        self._reached: bytes = b""
        self.trouble = DiskTrouble(self._path, now_s=now_s)
        self.file_bytes = 0
        self.oldest_s = 0.0
        self._watch = StallWatch(_STALL_S, self._on_stall)
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._watch.start()

    def wake(self) -> None:
        """Say that there is something that should not wait."""
        self._wake.set()

    def close(self) -> None:
        """Write what is left, say that this start ended well, and leave the file to the next one.

        Where the disk does not answer that is left to the next start, which takes it for a crash.
        """
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        self._watch.close()
        if self._thread.is_alive():
            _log.error("messages are not all on the disk at the end path=%s error=%s", self._path, _STALLED)
            return
        try:
            self._write(float("inf"), is_ended=True)
        except (DiskError, SpoolDamagedError) as error:
            _log.error("messages are not all on the disk at the end path=%s error=%s", self._path, error)
        self._standing.close()

    def counts(self) -> Mapping[str, int]:
        """Return how it stands: bytes and seconds as whole numbers, `spool_works` 0 while the disk does not."""
        return {
            "spool_bytes": self.file_bytes,
            "spool_oldest_s": round(self.oldest_s),
            "spool_works": int(self.trouble.told is None),
        }

    def tick(self) -> None:
        """Do what is due. Messages come back also from a disk that takes none."""
        with self._watch.watched():
            self._tick(self._now_s())

    def _tick(self, now_s: float) -> None:
        for part in (self._save, self._bring_back, self._look):
            try:
                if now_s >= self._retry_s or (part == self._bring_back and self._standing.is_open):
                    part(now_s)
            except DiskError as error:
                self._stumble(str(error))
            except SpoolDamagedError as error:
                self._replace(str(error))
        self.trouble.look()

    @property
    def _disk(self) -> Disk:
        return self._standing.disk

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(_LOOK_S)
            self._wake.clear()
            rest_s = self._wrote_s + _GROUP_S - self._now_s()
            if rest_s > 0 and not self._is_closing:
                time.sleep(min(rest_s, _GROUP_S))
            try:
                self.tick()
            except Exception:  # the border of the thread: publishing goes on in memory
                _log.exception("spool failed path=%s", self._path)
                self._stumble("an internal error")

    def _save(self, now_s: float) -> None:
        if not self._standing.is_open:
            self._standing.open()
            if self._standing.not_begun is not None:
                raise DiskError(self._standing.not_begun)
        before_s = -float("inf") if self._is_short else now_s - max(_DUE_S, self._patience_s())
        is_tidy_time = now_s - self._wrote_s >= _TIDY_S and self._spool.has_news()
        is_reached_time = now_s - self._wrote_s >= _REACHED_S and self._reached_now() != self._reached
        is_again = self.trouble.now is not None and not self._is_short
        if is_again:
            self._hold_place()
        if is_again and self._spool.is_disk_settled():
            self._standing.renew()  # a full disk takes not even that rows go
            self._spool.take_gone()
        if is_again or is_tidy_time or is_reached_time or self._spool.is_due(before_s):
            self._write(before_s)
        if is_again:
            self.trouble.say(None)

    def _bring_back(self, _now_s: float) -> None:
        self._spool.relieve()
        self._load(is_event=True)
        self._load(is_event=False)

    def _look(self, now_s: float) -> None:
        if now_s - self._looked_s >= _LOOK_AT_BOUNDS_S or self._wrote_s >= now_s:
            self._looked_s = now_s
            self._hold_place()
            self._hold_bounds()

    # -- writing

    def _write(self, before_s: float, *, is_ended: bool = False) -> None:
        while True:
            batch = self._spool.batch(_AT_ONCE, accepted_before_s=before_s)
            self._commit(batch, is_ended=is_ended and len(batch) < _AT_ONCE)
            if len(batch) < _AT_ONCE:
                return

    def _commit(self, batch: Sequence[Written], *, is_ended: bool) -> None:
        epoch, at_s = self._spool.maker.epoch, self._clock.at_s
        rows = [SpoolRow(one.ticket, epoch, one.is_event, at_s(one.accepted_at_s), one.head, one.body) for one in batch]
        gone, reached = self._spool.take_gone(), self._reached_now()
        gaps = self._outbox.gap_payloads() if self._spool.are_gaps_new else None
        try:
            start = self._standing.start(reached, is_ended=is_ended)
            self._watch.goes_on()
            self._disk.commit(rows=rows, gone=gone, gaps=gaps, start=start)
            self._watch.goes_on()
        except BaseException:
            if self._spool.not_written(gone):
                self._on_more()
            raise
        self._reached, self._wrote_s = reached, self._now_s()
        if self._spool.written([row.ticket for row in rows]):
            self._on_more()

    def _reached_now(self) -> bytes:
        return reached_as_json(self._spool.reached())

    # -- loading

    def _load(self, *, is_event: bool) -> None:
        first = self._spool.wanted(is_event=is_event)
        if first is None:
            return
        entries: list[Entry] = []
        unreadable: list[int] = []
        while len(entries) < _LOAD // 2:
            rows, damaged = self._disk.rows(first, _LOAD, is_event=is_event)
            away = [row for row in rows if self._spool.is_away(row.ticket)]
            made = [(row.ticket, self._entry(row)) for row in away]
            entries += [entry for _, entry in made if entry is not None]
            unreadable += [ticket for ticket, entry in made if entry is None]
            unreadable += [ticket for ticket in damaged if self._spool.is_away(ticket)]
            if len(rows) + len(damaged) < _LOAD:
                first = None
                break
            first = max([row.ticket for row in rows[-1:]] + damaged[-1:]) + 1
        if unreadable:
            self._unreadable(unreadable, is_event=is_event)
        missing = self._spool.came_back(entries, first, is_event=is_event)
        self._on_more()
        if missing:
            raise SpoolDamagedError(f"{missing} messages that are in it are not found")

    def _entry(self, row: SpoolRow) -> Entry | None:
        entry = self._standing.entry(row, was_sent=self._was_sent(row))
        return None if entry is None else late(entry)

    def _unreadable(self, tickets: Sequence[int], *, is_event: bool) -> None:
        lost = self._spool.unreadable(tickets, is_event=is_event)
        self._standing.declare_damage(self._outbox, lost, self._spool.reached())
        _log.error("messages on the disk are damaged path=%s count=%d: declared as a gap", self._path, len(tickets))

    # -- bounds

    def _hold_place(self) -> None:
        """Have the file where the next start looks for it: what was removed or replaced is written there anew."""
        self._spool.is_in_place = self._disk.is_in_place()
        if self._spool.is_in_place:
            return
        try:
            aside = self._standing.put_back(self._watch.goes_on)
        except DiskError as error:
            raise DiskError(f"its file is not in its place any more, and cannot be put back: {error}") from error
        self._spool.is_in_place = True
        _log.warning(
            "spool was taken away path=%s: written anew, what was there instead is set aside as %s",
            self._path,
            aside.name,
        )

    def _hold_bounds(self) -> None:
        disk, bounds = self._disk, self._bounds
        self.file_bytes = disk.file_bytes
        room = max(0, disk.free_bytes() - bounds.free_bytes)
        self._look_at_room(is_short=not room and self.file_bytes < _USEFUL_BYTES)
        most_bytes = min(bounds.max_bytes, self.file_bytes + room)
        reason: GapReason = "spool-disk" if most_bytes < bounds.max_bytes else "spool-bytes"
        over_bytes = disk.used_bytes - (most_bytes - most_bytes // _EVENTS_SHARE)
        if over_bytes > 0 and not self._is_short:
            step_bytes = over_bytes + most_bytes // _EVICTION_SHARE
            is_done = self._let_go(reason, is_event=False, most_bytes=step_bytes)
            if not is_done and disk.used_bytes > most_bytes:
                self._let_go(reason, is_event=True, most_bytes=step_bytes)
        for is_event in (False, True):
            self._let_go("spool-age", is_event=is_event, before_s=self._clock.now_s() - bounds.max_age_s)
        oldest_at_s = disk.oldest_at_s()
        self.oldest_s = 0.0 if oldest_at_s is None else self._clock.age_s(oldest_at_s)
        if oldest_at_s is None and self.file_bytes > _USEFUL_BYTES:
            disk.shrink()

    def _look_at_room(self, *, is_short: bool) -> None:
        if is_short != self._is_short:
            self._is_short = is_short
            free_mib = self._bounds.free_bytes >> 20
            self.trouble.say(f"less than {free_mib} MiB are free: frames wait in memory only" if is_short else None)

    def _let_go(
        self, reason: GapReason, *, is_event: bool, most_bytes: float = float("inf"), before_s: float = float("inf")
    ) -> bool:
        """Let the oldest go, to a number of bytes or to an age; return whether there were any."""
        first, freed_bytes, has_found = 0, 0, False
        while freed_bytes < most_bytes:
            rows, damaged = self._disk.rows(first, _LOAD, is_event=is_event)
            old = [row for row in rows if self._clock.age_s(row.at_s) > self._clock.now_s() - before_s]
            entries = {row.ticket: self._standing.entry(row, was_sent=self._was_sent(row)) for row in old}
            self._outbox.let_go_written(entries, reason)
            if damaged and old:
                self._unreadable(damaged, is_event=is_event)
            if old:
                has_found = True
                self._commit([], is_ended=False)
            freed_bytes += sum(len(row.head) + len(row.body) + _ROW_BYTES for row in old)
            if len(old) < _LOAD:
                return has_found
            first = old[-1].ticket + 1
        return has_found

    def _was_sent(self, row: SpoolRow) -> bool:
        return row.start != self._spool.maker.epoch or self._spool.was_sent(row.ticket)

    # -- trouble

    def _on_stall(self) -> None:
        """Called by the watch while the thread that writes is held by the disk."""
        self.trouble.say(_STALLED)
        if self._spool.not_waited_for():
            self._on_more()

    def _stumble(self, what: str) -> None:
        """Go on in memory, and try again later."""
        self._retry_s = self._now_s() + _RETRY_S
        if self._spool.not_waited_for():
            self._on_more()
        self.trouble.say(what)

    def _replace(self, what: str) -> None:
        """Set a damaged file aside, and go on with what can be read of it."""
        try:
            aside = self._standing.replace(self._outbox, self._spool)
        except (DiskError, SpoolDamagedError) as error:
            self._stumble(f"{what}; it cannot be set aside: {error}")
            return
        _log.error(
            "spool is damaged path=%s error=%s: set aside as %s, what is missing is declared as a gap",
            self._path,
            what,
            aside.name,
        )
        self.trouble.was_damaged()
