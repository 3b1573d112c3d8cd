"""The bounds of the store: bytes, age, free disk; and the alarm about a disk that does not take messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge.publish.messages import GapReason
from edge.publish.outbox.message import Entry
from edge.publish.outbox.places import Places
from edge.publish.outbox.queue import Outbox
from edge.publish.outbox.store import Place, Row

__all__ = ["BoundHolder", "Bounds", "DiskTrouble"]

_LOAD = 128
# Shares of the bound: what frames leave to events, and what is dropped at a time when it is reached.
_EVENTS_SHARE, _EVICTION_SHARE = 8, 32
_USEFUL_BYTES = 4 << 20  # a file below this is no room to work in, and nothing to give back
_ROW_BYTES = 64
_CALM_S = 10.0
_DAMAGE_S = 60.0  # for so long people are told that the file was damaged; the gap records stay

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may lie on the disk, how old it may be, and how much of the disk is left to others."""

    max_bytes: int = 256 << 20
    max_age_s: float = 72 * 3600.0
    free_bytes: int = 1 << 30


class DiskTrouble:
    """Thread-safe. `now` is what is wrong at this moment, `told` what log, metrics, state and status page say.

    A disk that works and fails in turns is in trouble until it has worked for ten seconds, and another wording is told
    no sooner than that after the one before.
    """

    def __init__(self, path: Path, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now_s = now_s
        self._lock = threading.RLock()
        self._wrong_s = self._worded_s = self._damaged_s = -float("inf")
        self.now: str | None = None
        self.told: str | None = None

    @property
    def alarm(self) -> str | None:
        """The problem and its effect in one sentence; None: there is none."""
        said = []
        if self.told is not None:
            said.append(f"messages are in memory only, which a power cut takes: {self.told}")
        if self._now_s() - self._damaged_s < _DAMAGE_S:
            said.append("the file of messages was damaged and is set aside: what is missing is declared")
        return "; ".join(said) or None

    def say(self, trouble: str | None) -> None:
        """`trouble` None: nothing is wrong."""
        with self._lock:
            self.now, now_s = trouble, self._now_s()
            if trouble is not None:
                self._wrong_s = now_s
            since_s = self._wrong_s if trouble is None else self._worded_s
            if trouble == self.told or (self.told is not None and now_s - since_s < _CALM_S):
                return
            self.told, self._worded_s = trouble, now_s
            if trouble is None:
                _log.info("messages are kept on the disk again path=%s", self._path)
            else:
                _log.warning("messages are in memory only path=%s error=%s", self._path, trouble)

    def look(self) -> None:
        """Let time pass: what has not come back for long enough is over."""
        with self._lock:
            if self.now != self.told:
                self.say(self.now)

    def was_damaged(self) -> None:
        """Record that the file was another than we wrote, and that there is a new one."""
        self._damaged_s = self._now_s()


@dataclass
class BoundHolder:
    """Drops the oldest frames first, events last. Of the thread that writes.

    `is_short`: the disk has so little room that only events go there. `file_bytes` is what the store takes on the disk,
    `oldest_s` the age of the oldest message there, 0 without one.
    """

    outbox: Outbox
    places: Places
    trouble: DiskTrouble
    bounds: Bounds
    run_bytes: int
    commit: Callable[[Place], None]
    is_short: bool = False
    file_bytes: int = 0
    oldest_s: float = 0.0

    @property
    def is_run_full(self) -> bool:
        """Whether the first place holds more than it may: then all of it goes to the disk."""
        return self.outbox.stored.run_bytes > self.run_bytes

    def hold_run(self) -> None:
        """Drop what the first place may not hold, where the disk does not take it."""
        over_bytes = self.outbox.stored.run_bytes - self.run_bytes
        if over_bytes > 0:
            most_bytes = over_bytes + self.run_bytes // _EVICTION_SHARE
            for is_event in (False, True):
                if self._drop(self.places.run, "spool-bytes", is_event=is_event, most_bytes=most_bytes):
                    return

    def hold_disk(self, disk: Place) -> None:
        """Drop what is too much or too old on the disk, and give room back that nothing needs."""
        bounds = self.bounds
        self.file_bytes = disk.file_bytes
        free_bytes = disk.free_bytes()
        room = max(0, free_bytes - bounds.free_bytes)
        self._look_at_room(is_short=free_bytes < bounds.free_bytes and self.file_bytes < _USEFUL_BYTES)
        most_bytes = min(bounds.max_bytes, self.file_bytes + room)
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
        if disk.at_s() is None and self.file_bytes > _USEFUL_BYTES:
            disk.shrink()

    def _oldest_s(self, disk: Place) -> float:
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
        """Drop the oldest, to a number of bytes or to an age; return whether there were any."""
        first, freed_bytes, has_found = 0, 0, False
        while freed_bytes < most_bytes:
            rows = place.rows(first, _LOAD, is_event=is_event)
            old = [row for row in rows if self.places.clock.age_s(row.at_s) > least_age_s]
            self.outbox.drop_written({row.ticket: self._entry(row) for row in old}, reason)
            if old:
                has_found = True
                self.commit(place)
            freed_bytes += sum(len(row.head) + len(row.body) + _ROW_BYTES for row in old)
            if len(old) < _LOAD:
                return has_found
            first = old[-1].ticket + 1
        return has_found

    def _entry(self, row: Row) -> Entry:
        return self.places.entry(row, was_sent=self.outbox.stored.was_sent(row.ticket))
