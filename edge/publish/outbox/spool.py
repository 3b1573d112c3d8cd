"""Which messages are on the disk, in memory, or both: what an outbox and the thread that writes know together.

A message that is accepted is unwritten; one that is delivered before it is due is never written. A written one may be
in memory too, or, when memory is short, on the disk only, from where it comes back when its turn is near. An event is
not sent before it is written.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from edge.publish.outbox.backlog import Backlog
from edge.publish.outbox.entry import Entry
from edge.publish.outbox.records import Maker, SeqKey, lies_as, seq_key_of

__all__ = ["Spool", "Written"]

_READ_AT_ONCE = 64  # of a ring, while the outbox is locked
_AHEAD = 64  # messages that are to be in memory before the first that is not
_SMALL = 1 / 2  # of its bound: what memory may hold before the newest late ones are on the disk only


class Written(msgspec.Struct, frozen=True, gc=False):
    """One message as it is to lie on the disk; `accepted_at_s` is seconds of `time.monotonic`."""

    ticket: int
    is_event: bool
    accepted_at_s: float
    head: bytes
    body: bytes


class Spool:
    """Used by an outbox, which holds its lock, and by the one thread that writes, whose calls take that lock.

    Attributes:
        is_usable: whether the disk takes messages; events do not wait for one that does not.
        is_in_place: whether the next start would find them; no message is on the disk only where it would not.
        away: how many are on the disk only, by whether they are events.
        are_gaps_new: whether other gap records wait than those on the disk.
        wake: called when something should not wait.
    """

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.wake: Callable[[], None] = lambda: None
        self.is_usable = self.is_in_place = True
        self.away = {False: 0, True: 0}
        self.are_gaps_new = False
        self._lock = threading.Lock()
        self._backlog: Backlog
        self._max_bytes = 0
        self._unwritten: dict[int, Entry] = {}
        self._writing: dict[int, Entry] = {}
        self._here: set[int] = set()
        self._gone: set[int] = set()
        self._sent: set[int] = set()
        self._newly_away = {False: math.inf, True: math.inf}
        self._last: dict[SeqKey, int] = {}
        self._has_events = False

    def attach(self, lock: threading.Lock, backlog: Backlog, max_bytes: int) -> None:
        """Belong to an outbox."""
        self._lock, self._backlog, self._max_bytes = lock, backlog, max_bytes

    # -- of the outbox, which holds its lock

    def accept(self, entry: Entry) -> None:
        """Put a new numbered message in its lane; it is to be written."""
        number = entry.number
        assert number is not None
        self._last[seq_key_of(number)] = number.seq
        self._unwritten[entry.ticket] = entry
        if number.of != "events":
            self._backlog.append(entry)
            return
        if self.is_usable:
            self._backlog.hold(entry)
        else:
            self._backlog.append(entry)
        self._has_events = True
        self.wake()

    def restore(self, entries: Sequence[Entry], saved: Mapping[int, bool]) -> int:
        """Take note of what earlier starts have left: `entries` are in memory, `saved` on the disk (ticket, is event).

        Returns how many are on the disk only.
        """
        here = {entry.ticket for entry in entries}
        self._here = {ticket for ticket in saved if ticket in here}
        self._unwritten = {one.ticket: one for one in entries if one.ticket not in saved and one.number is not None}
        away: dict[bool, list[int]] = {False: [], True: []}
        for ticket, is_event in saved.items():
            if ticket not in here:
                away[is_event].append(ticket)
        self._set_away(away)
        return sum(self.away.values())

    def join(self, saved: Mapping[int, bool], restored: Container[int]) -> int:
        """Take note of what lies on a disk that is open only now; `restored` were in memory since the beginning.

        Returns how many are on the disk only.
        """
        away: dict[bool, list[int]] = {False: [], True: []}
        for ticket, is_event in saved.items():
            if self._unwritten.pop(ticket, None) is not None:
                self._here.add(ticket)
            elif ticket in restored:  # delivered or declared meanwhile
                self._gone.add(ticket)
            else:
                away[is_event].append(ticket)
        self._set_away(away)
        return sum(self.away.values())

    def settle(self, ticket: int) -> None:
        """Forget a message: it was delivered, or let go and declared."""
        if self._unwritten.pop(ticket, None) is not None or self._writing.pop(ticket, None) is not None:
            return
        if ticket in self._here:
            self._here.discard(ticket)
            self._gone.add(ticket)

    def put_away(self, entry: Entry) -> bool:
        """Take a message out of memory if it is on the disk; return whether it is."""
        if entry.ticket not in self._here or not self.is_in_place:
            return False
        self._here.discard(entry.ticket)
        self.away[entry.is_event] += 1
        for first in (self._backlog.first_away, self._newly_away):
            first[entry.is_event] = min(first[entry.is_event], entry.ticket)
        if entry.was_sent:
            self._sent.add(entry.ticket)
        if entry.slot is not None:
            entry.slot.settle()
        return True

    # -- of the thread that writes

    def is_due(self, accepted_before_s: float) -> bool:
        """Return whether a message was accepted so early that it should be on the disk, or an event waits for it."""
        with self._lock:
            oldest = next(iter(self._unwritten.values()), None)
            return self._has_events or (oldest is not None and oldest.accepted_at_s <= accepted_before_s)

    def has_news(self) -> bool:
        """Return whether something on the disk is settled, or another gap record waits."""
        with self._lock:
            return bool(self._gone) or self.are_gaps_new

    def batch(self, most: int, *, accepted_before_s: float) -> list[Written]:
        """Return what is to be written now: events, and, if one of them is due, all others."""
        entries: dict[int, Entry] = {}
        with self._lock:
            oldest = next(iter(self._unwritten.values()), None)
            is_all = oldest is not None and oldest.accepted_at_s <= accepted_before_s
            due = (ticket for ticket, one in self._unwritten.items() if is_all or one.is_event)
            chosen = list(itertools.islice(due, most))
            for ticket in chosen:
                entries[ticket] = self._writing[ticket] = self._unwritten.pop(ticket)
            self._has_events = len(chosen) == most
        found: list[Written] = []
        left = iter(entries.values())
        while some := list(itertools.islice(left, _READ_AT_ONCE)):
            found += self._contents(some)
        return found

    def _contents(self, entries: Sequence[Entry]) -> list[Written]:
        """Return them as they will lie on the disk; what has been settled meanwhile is left out."""
        read: list[tuple[Entry, bytes, bytes]] = []
        with self._lock:
            for entry in entries:
                if entry.ticket in self._writing:
                    slot = entry.slot
                    read.append((entry, b"", b"") if slot is None else (entry, slot.read_head(), slot.read()))
        found: list[Written] = []
        for entry, ring_head, ring_body in read:
            head, body = (ring_head, ring_body) if ring_body else lies_as(entry, self.maker)[:2]
            found.append(Written(entry.ticket, entry.is_event, entry.accepted_at_s, head, body))
        return found

    def reached(self) -> dict[SeqKey, int]:
        """Return for each account of this start the number up to which a power cut loses none, once this is written."""
        with self._lock:
            found = dict(self._last)
            for entry in self._unwritten.values():
                number = entry.number
                if number is not None and seq_key_of(number) in found:
                    found[seq_key_of(number)] = min(found[seq_key_of(number)], number.seq - 1)
            return found

    def is_disk_settled(self) -> bool:
        """Return whether all that is on the disk has been delivered, or is declared."""
        with self._lock:
            return not (self._here or self._writing or self.away[False] or self.away[True])

    def take_gone(self) -> set[int]:
        """Return the tickets of rows that are to go."""
        with self._lock:
            gone, self._gone = self._gone, set()
            return gone

    def written(self, tickets: Iterable[int]) -> bool:
        """Take note of what is on the disk now, and let events among it be sent; return whether there are any."""
        with self._lock:
            self.is_usable = True
            known = list(tickets)
            for ticket in known:
                if self._writing.pop(ticket, None) is not None:
                    self._here.add(ticket)
                else:  # settled meanwhile
                    self._gone.add(ticket)
            return self._backlog.release(known)

    def not_written(self, gone: Iterable[int]) -> bool:
        """Take note that the disk did not do it; events are sent without. Return whether there are any."""
        with self._lock:
            self._unwritten = {**self._writing, **self._unwritten}
            self._writing.clear()
            self._gone |= set(gone)
            self.are_gaps_new = True
            self.is_usable = False
            self._has_events = False
            return self._backlog.release(list(self._unwritten))

    def not_waited_for(self) -> bool:
        """Let events be sent that the disk has not taken yet, as it may still do; return whether there are any."""
        with self._lock:
            self.is_usable = False
            return self._backlog.release([*self._writing, *self._unwritten])

    def begin_again(self, entries: Iterable[Entry], found: Iterable[tuple[int, bool]]) -> int:
        """Take note that the file is another one. The outbox holds its lock.

        `entries` are all in memory, `found` are tickets of the file, and whether they are events'. Returns how many
        messages fewer are on the disk only.
        """
        before = sum(self.away.values())
        self._unwritten = {one.ticket: one for one in entries if one.number is not None}
        self._writing.clear()
        self._here.clear()
        self._gone.clear()
        away: dict[bool, list[int]] = {False: [], True: []}
        for ticket, is_event in found:
            if ticket not in self._unwritten:
                away[is_event].append(ticket)
        self._set_away(away)
        self.are_gaps_new = True
        return before - sum(self.away.values())

    def _set_away(self, away: Mapping[bool, Sequence[int]]) -> None:
        for is_event, tickets in away.items():
            self.away[is_event] = len(tickets)
            self._backlog.first_away[is_event] = min(tickets, default=math.inf)

    def relieve(self) -> None:
        """Keep the newest late messages on the disk only, where memory holds more than it should."""
        while self._relieved(_READ_AT_ONCE):
            pass

    def _relieved(self, most: int) -> bool:
        with self._lock:
            self._backlog.age(most)
            for _ in range(most):
                if self._backlog.size_bytes <= self._max_bytes * _SMALL or not self.is_in_place:
                    return False
                entry = self._backlog.take_newest_late(self._here)
                if entry is None or not self.put_away(entry):
                    return False
            return True

    def wanted(self, *, is_event: bool) -> int | None:
        """Return from which ticket on messages should come back from the disk, until `came_back`; None: none now."""
        with self._lock:
            first = self._backlog.first_away[is_event]
            if not self.away[is_event] or self._backlog.ahead(_AHEAD, is_event=is_event) >= _AHEAD:
                return None
            self._newly_away[is_event] = math.inf
            return int(first)

    def is_away(self, ticket: int) -> bool:
        """Return whether a row that was read is of a message that is not in memory and not settled."""
        with self._lock:
            return self._is_away(ticket)

    def is_here(self, ticket: int) -> bool:
        """Return whether a message is in memory and on the disk. The outbox holds its lock."""
        return ticket in self._here

    def was_sent(self, ticket: int) -> bool:
        """Return whether this start has sent it before."""
        return ticket in self._sent

    def came_back(self, entries: Sequence[Entry], beyond: int | None, *, is_event: bool) -> int:
        """Put messages from the disk in their lane; `beyond`: from which ticket on there may be more, None: none.

        Returns how many should be there and are nowhere.
        """
        with self._lock:
            self._backlog.insert(entries, is_event=is_event)
            self._here.update(entry.ticket for entry in entries)
            self._sent.difference_update(entry.ticket for entry in entries)
            self._less_away(len(entries), is_event=is_event)
            if not self.away[is_event]:
                return 0
            first = min(self._newly_away[is_event], math.inf if beyond is None else beyond)
            if first == math.inf:
                return self.away[is_event]
            self._backlog.first_away[is_event] = first
            return 0

    def unreadable(self, tickets: Iterable[int], *, is_event: bool) -> int:
        """Let rows go of which no more is known than the kind; return how many of them were nowhere else."""
        with self._lock:
            known = [ticket for ticket in tickets if self._is_away(ticket)]
            self._gone.update(tickets)
            self._less_away(len(known), is_event=is_event)
            return len(known)

    def let_go_away(self, ticket: int, *, is_event: bool) -> bool:
        """Let one go that is on the disk only; return whether it was. The outbox holds its lock."""
        if not self._is_away(ticket):
            return False
        self._gone.add(ticket)
        self._sent.discard(ticket)
        self._less_away(1, is_event=is_event)
        return True

    def _is_away(self, ticket: int) -> bool:
        return ticket not in self._here and ticket not in self._gone and ticket not in self._writing

    def _less_away(self, count: int, *, is_event: bool) -> None:
        self.away[is_event] = max(0, self.away[is_event] - count)
        if not self.away[is_event]:
            self._backlog.first_away[is_event] = math.inf
