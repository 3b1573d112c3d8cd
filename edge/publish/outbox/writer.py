"""The thread that writes messages to the store, moves them to the disk, brings them back, and holds the bounds."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from edge.publish.messages import GapReason
from edge.publish.outbox.bounds import Bounds, DiskTrouble
from edge.publish.outbox.message import SeqKey, lies_as
from edge.publish.outbox.places import Places
from edge.publish.outbox.queue import Outbox
from edge.publish.outbox.store import Place, PlaceDamagedError, PlaceUnusableError, Row, StoreError, remove, set_aside

__all__ = ["Writer"]

_LOOK_S = 0.02  # so much a kill can take
# A message that waits longer is on its way to the disk: it is there when it is a quarter of a second old.
_DUE_S = 0.15
_GROUP_S = 0.05  # so far apart are two writes to the disk, also where events come one by one
_TIDY_S = 0.25  # rows of what was delivered go in groups
_REACHED_S = 60.0
_RETRY_S = 5.0
_STALL_S = 3.0  # a disk that answers later holds no event back any more
_CLOSE_S = 5.0
_LOOK_AT_BOUNDS_S = 1.0
_LOAD = 128  # rows at a time
# Shares of the bound: what frames leave to events, and what is dropped at a time when it is reached.
_EVENTS_SHARE, _EVICTION_SHARE = 8, 32
_USEFUL_BYTES = 4 << 20  # a file below this is no room to work in, and nothing to give back
_ROW_BYTES = 64
_STALLED = f"the disk has not answered for {_STALL_S:.0f} s"

_log = logging.getLogger(__name__)


class Writer:
    """Whatever the disk does, it never raises: messages stay in /run or in memory then. `tick` is one round of it."""

    def __init__(
        self,
        outbox: Outbox,
        places: Places,
        *,
        bounds: Bounds,
        run_bytes: int,
        on_more: Callable[[], None],
        patience_s: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        self.places = places
        self._outbox = outbox
        self._stored = outbox.stored
        self._on_more = on_more
        self._patience_s = patience_s
        self._now_s = now_s
        self._wake = threading.Event()
        self._stored.wake = self._wake.set
        self._has_disk = self._stored.is_usable = places.disk_path is not None
        self._is_closing = self._is_event_due = False
        self._wrote_s = now_s()
        self._looked_s = self._retry_s = self._run_retry_s = -1e9
        self._gaps: dict[int, bytes] = {}
        self._reached: Mapping[SeqKey, int] = {}
        self._reached_on_disk: Mapping[SeqKey, int] = {}
        self._is_disk_begun = False
        self._path = places.disk_path or places.run.path or Path()
        self.trouble = DiskTrouble(self._path, now_s=now_s)
        self.bounds = bounds
        self._run_bytes = run_bytes
        self.is_short = False  # the disk has so little room that only events go there
        self._file_bytes, self.oldest_s = 0, 0.0  # what the file takes, and the age of the oldest message there
        self._asked_s: float | None = None  # since then the disk has not answered
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self._watch = threading.Thread(target=self._watch_disk, name="spool-watch", daemon=True)

    def begin(self) -> None:
        """Say in both places that this start has begun; earlier ones are accounted for by the gap records that wait."""
        gaps = self._gaps_now()
        starts = self.places.earlier_starts() | self.places.start({})
        for _ in range(2):  # the second time in memory
            try:
                self.places.run.commit(gaps=gaps, starts=starts)
                self.places.run.forget_starts(self.places.maker.epoch)
                break
            except StoreError as error:
                self._run_in_memory(str(error))
        self._stored.run_bytes = self.places.run.used_bytes
        if self.places.disk is not None:
            self.begin_disk()

    def begin_disk(self) -> None:
        """Say on the disk that this start has begun."""
        self._is_disk_begun = False
        try:
            self._move(only_events=True)
            self._disk.forget_starts(self.places.maker.epoch)
        except StoreError as error:
            self.say_stumbled(str(error))

    def start(self) -> None:
        self._thread.start()
        self._watch.start()

    def close(self) -> None:
        """Write what is left, say that this start ended well, and leave the files to the next one.

        Where the disk does not answer that is left to the next start, which takes it for a crash.
        """
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        self._has_ended.set()
        if self._thread.is_alive():
            _log.error("messages not on disk at shutdown path=%s error=%s", self._path, _STALLED)
            return
        try:
            self._outbox.admit()
            self._save(is_ended=True)
            if self._has_disk:
                self._move(only_events=False, is_ended=True)
        except StoreError as error:
            _log.error("messages not on disk at shutdown path=%s error=%s", self._path, error)
        self.places.store.close()

    @property
    def is_kept(self) -> bool:
        """Whether messages outlive the process."""
        return self._has_disk or self.places.run.path is not None

    def counts(self) -> Mapping[str, int]:
        """Return how it stands: bytes and seconds as whole numbers, `spool_works` 0 while the disk does not."""
        if not self._has_disk:
            return {}
        return {
            "spool_bytes": self._file_bytes,
            "spool_oldest_s": round(self.oldest_s),
            "spool_works": int(self.trouble.told is None),
        }

    def tick(self) -> None:
        """Do what is due. Messages come back also from a disk that takes none."""
        for part in (self._save_now, self._move_now, self._bring_back, self._look):
            self._asked_s = time.monotonic()
            try:
                part()
            except PlaceUnusableError as error:
                self._unusable(error)
            except PlaceDamagedError as error:
                self._damaged(error)
        self._asked_s = None
        self.trouble.look()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(_LOOK_S)
            self._wake.clear()
            try:
                self.tick()
            except Exception:  # the border of the thread: publishing goes on in memory
                _log.exception("spool failed path=%s", self._path)
                self._stumble("an internal error")

    def _watch_disk(self) -> None:
        """Notice a disk that does not answer: nothing of Python ends a call that a frozen file system holds."""
        while not self._has_ended.wait(_STALL_S / 4):
            asked_s = self._asked_s
            if asked_s is not None and time.monotonic() - asked_s >= _STALL_S:
                self.say_stumbled(_STALLED)

    def _save_now(self) -> None:
        self._outbox.admit()
        if self.places.run.path != self.places.run_path and self._now_s() >= self._run_retry_s:
            self._run_in_file()
        if self._stored.has_news() or not self.places.run.has_gaps(self._gaps):
            self._save()

    def _save(self, *, is_ended: bool = False) -> None:
        maker, at_s = self.places.maker, self.places.clock.at_s
        with self._stored.batch() as (entries, gone, reached):
            self._is_event_due |= any(entry.is_event for entry in entries)
            gaps = self._gaps_now()
            rows = (
                Row(one.ticket, maker.epoch, one.is_event, at_s(one.accepted_at_s), *lies_as(one, maker))
                for one in entries
            )
            start = self.places.start(reached, is_ended=is_ended)
            self.places.run.commit(rows=rows, gone=gone, gaps=gaps, starts=start)
        self._reached = reached
        self._stored.run_bytes = self.places.run.used_bytes

    def _gaps_now(self) -> dict[int, bytes]:
        """Return all gap records that wait: asked after the rows that go, each of which is delivered or named there."""
        if self._stored.are_gaps_new:
            self._gaps = self._outbox.gap_payloads()
        return self._gaps

    def _move_now(self) -> None:
        """Move what has waited, and events; delete what was delivered."""
        now_s = self._now_s()
        if not self._has_disk or now_s < self._retry_s:
            return
        if self.places.disk is None:
            self.places.join()
        is_again = self.trouble.now is not None and not self.is_short
        if is_again:
            self._hold_place()
        since_s = now_s - self._wrote_s
        is_minute = since_s >= _REACHED_S and self._reached != self._reached_on_disk
        is_all = not self.is_short and (self._is_due(now_s) or is_again or is_minute)
        is_events = self._is_event_due and since_s >= _GROUP_S
        has_news = self._stored.has_gone_from_disk() or not self._disk.has_gaps(self._gaps)
        if is_again and self._stored.is_disk_settled(self._disk.tickets()):  # a full disk takes not even that rows go
            remove(self._path)  # first: one that cannot be removed stays in use
            self.places.leave_disk()
            self.places.join()
        if is_all or is_events or (has_news and since_s >= _TIDY_S):
            self._move(only_events=not is_all)
        if is_again:
            self.trouble.say(None)

    def _is_due(self, now_s: float) -> bool:
        oldest_s = self.places.run.at_s()
        if oldest_s is None:
            return False
        before_s = now_s - max(_DUE_S, self._patience_s())
        return self._stored.run_bytes > self._run_bytes or self.places.clock.monotonic_s(oldest_s) <= before_s

    def _move(self, *, only_events: bool, is_ended: bool = False) -> None:
        """Move messages to the disk; what they declare and how far accounts are kept goes in the same transaction."""
        disk, run = self._disk, self.places.run
        moved = run.tickets(is_event=True if only_events else None)
        reached = {key: seq for key, seq in self._reached.items() if not only_events or key[2] == "events"}
        reached = {**self._reached_on_disk, **reached}
        starts = {} if self._is_disk_begun else self.places.earlier_starts()
        starts |= self.places.start(reached, is_ended=is_ended)
        with self._stored.gone_from_disk() as gone:
            gaps = self._gaps_now()
            self._asked_s = time.monotonic()
            disk.commit(moved_from=run, only_events=only_events, gone=gone, gaps=gaps, starts=starts)
            self._asked_s = time.monotonic()
        self._reached_on_disk, self._is_disk_begun = reached, True
        self._wrote_s, self._is_event_due = self._now_s(), False
        self._stored.moved(moved)
        if any(moved.values()):
            self._on_more()
        run.commit(gone=moved)
        self._stored.run_bytes = run.used_bytes

    @property
    def _disk(self) -> Place:
        if self.places.disk is None:
            raise PlaceUnusableError("the file could not be opened")
        return self.places.disk

    def _bring_back(self) -> None:
        self._stored.relieve()
        for is_event in (True, False):
            if self._outbox.load(self.places, is_event=is_event):
                self._on_more()

    def _look(self) -> None:
        now_s = self._now_s()
        self._hold_run()
        is_time = now_s - self._looked_s >= _LOOK_AT_BOUNDS_S or self._wrote_s >= now_s
        if is_time and now_s >= self._retry_s and self.places.disk is not None:
            self._looked_s = now_s
            self._hold_place()
            self._hold_disk(self._disk)

    def _hold_place(self) -> None:
        """Begin the file anew where it was removed or replaced: the next start would not find what is in it."""
        if not self._disk.is_at_path():
            self._lose(is_disk=True)
            _log.error("spool file was removed path=%s: begun anew, what is missing is declared as a gap", self._path)
            self.places.join()

    def _hold_run(self) -> None:
        """Drop what the first place may not hold, and the disk has not taken."""
        over_bytes = self._stored.run_bytes - self._run_bytes
        if over_bytes > 0:
            most_bytes = over_bytes + self._run_bytes // _EVICTION_SHARE
            for is_event in (False, True):
                if self._drop(self.places.run, "spool-bytes", is_event=is_event, most_bytes=most_bytes):
                    return

    def _hold_disk(self, disk: Place) -> None:
        """Drop what is too much or too old on the disk, and give room back that nothing needs."""
        bounds = self.bounds
        self._file_bytes = disk.file_bytes
        free_bytes = disk.free_bytes()
        room = max(0, free_bytes - bounds.free_bytes)
        self._look_at_room(is_short=free_bytes < bounds.free_bytes and self._file_bytes < _USEFUL_BYTES)
        most_bytes = min(bounds.max_bytes, self._file_bytes + room)
        reason: GapReason = "spool-disk" if most_bytes < bounds.max_bytes else "spool-bytes"
        over_bytes = disk.used_bytes - (most_bytes - most_bytes // _EVENTS_SHARE)
        if over_bytes > 0 and not self.is_short:
            step_bytes = over_bytes + most_bytes // _EVICTION_SHARE
            is_done = self._drop(disk, reason, is_event=False, most_bytes=step_bytes)
            if not is_done and disk.used_bytes > most_bytes:
                self._drop(disk, reason, is_event=True, most_bytes=step_bytes)
        if self._oldest_s(disk) > bounds.max_age_s:
            for is_event in (False, True):
                self._drop(disk, "spool-age", is_event=is_event, least_age_s=bounds.max_age_s)
        self.oldest_s = self._oldest_s(disk)
        if disk.at_s() is None and self._file_bytes > _USEFUL_BYTES:
            disk.shrink()

    def _oldest_s(self, disk: Place) -> float:
        """Return the age of the oldest message on the disk, 0 without one."""
        at_s = disk.at_s()
        return 0.0 if at_s is None else self.places.clock.age_s(at_s)

    def _look_at_room(self, *, is_short: bool) -> None:
        if is_short != self.is_short:
            self.is_short = is_short
            free_mib = self.bounds.free_bytes >> 20
            self.trouble.say(f"less than {free_mib} MiB are free: frames wait in memory only" if is_short else None)

    def _drop(
        self,
        place: Place,
        reason: GapReason,
        *,
        is_event: bool,
        most_bytes: float = float("inf"),
        least_age_s: float = -1.0,
    ) -> bool:
        """Drop the oldest, to a number of bytes or to an age; return whether there were any.

        The disk deletes and declares in one transaction, /run in the next one.
        """
        first, freed_bytes, has_found = 0, 0, False
        while freed_bytes < most_bytes:
            rows = place.rows(first, _LOAD, is_event=is_event)
            old = [row for row in rows if self.places.clock.age_s(row.at_s) > least_age_s]
            sent = self._stored.was_sent
            self._outbox.drop_written(
                {one.ticket: self.places.entry(one, was_sent=sent(one.ticket)) for one in old}, reason
            )
            has_found |= bool(old)
            freed_bytes += sum(len(row.head) + len(row.body) + _ROW_BYTES for row in old)
            if len(old) < _LOAD:
                break
            first = old[-1].ticket + 1
        if has_found and place is not self.places.run:
            self._move(only_events=True)
        return has_found

    def _unusable(self, error: PlaceUnusableError) -> None:
        if error.place is not self.places.run:
            self._stumble(str(error))
        else:
            self._run_in_memory(str(error))

    def _stumble(self, what: str) -> None:
        """Go on without the disk, and try again later."""
        self._retry_s = self._now_s() + _RETRY_S
        self.say_stumbled(what)

    def say_stumbled(self, what: str) -> None:
        self._stored.is_usable = False
        self._on_more()
        self.trouble.say(what)

    def _run_in_memory(self, what: str) -> None:
        path = self.places.run.path
        self._run_retry_s = self._now_s() + _RETRY_S
        try:
            self.places.move_run(None)
        except StoreError as error:
            self._damaged(PlaceDamagedError(str(error), self.places.run))
        _log.warning("messages are not kept over a restart path=%s error=%s", path, what)

    def _run_in_file(self) -> None:
        self._run_retry_s = self._now_s() + _RETRY_S
        with contextlib.suppress(StoreError):
            try:
                self.places.move_run(self.places.run_path)
                _log.info("messages are kept over a restart again path=%s", self.places.run.path)
            except PlaceDamagedError:  # left over from a failed removal: the next try makes a new file
                if self.places.run_path is not None:
                    remove(self.places.run_path)

    def _damaged(self, error: PlaceDamagedError) -> None:
        """Set a damaged place aside, and declare what was only there: the next round begins it anew."""
        is_disk = error.place is not self.places.run
        path = self._path if is_disk else self.places.run.path
        self._lose(is_disk=is_disk)
        try:
            if path is not None:
                set_aside(path, error)
        except StoreError as other:
            what = f"{error}; {other}"
            if is_disk:
                self._stumble(what)
            else:
                _log.warning("messages are not kept over a restart path=%s error=%s", path, what)

    def _lose(self, *, is_disk: bool) -> None:
        """Leave a place, and declare what was there only; what is in memory, too, is written again."""
        if is_disk:
            self.places.leave_disk()
        else:
            self.places.leave_run()
            self._run_retry_s = self._now_s()
        other = self.places.run if is_disk else self.places.disk
        gaps = self.places.damage_gaps(self._reached)
        self._outbox.lose_place({} if other is None else other.tickets(), gaps, is_disk=is_disk)
        self._reached_on_disk = {}
        self.trouble.was_damaged()
