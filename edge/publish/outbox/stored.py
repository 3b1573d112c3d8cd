"""Which messages are in memory, in the store, or both: what the queue and the thread that writes know together.

A message that is accepted is new; the next transaction takes it into the first place of the store, if it is not
delivered by then. One that waits is moved to the disk. A message in the store may be in memory too, or, when memory is
short, in the store only ("away"), from where it comes back when its turn is near. An event is not sent before it is on
the disk, as long as the disk works.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from edge.publish.outbox.lanes import Backlog
from edge.publish.outbox.message import Entry, SeqKey

__all__ = ["Stored"]

_AHEAD = 64  # messages that are to be in memory before the first that is not
_MEMORY_SHARE = 4  # of its bound: what memory may hold before the newest late ones are in the store only


class Stored:
    """Used by a queue, which holds its lock, and by the one thread that writes, whose calls take that lock.

    `is_usable`: there is a disk, and it takes messages; else events do not wait for it. `away` counts those in the
    store only, by whether they are events; `are_gaps_new`: other gap records wait than are in the store. `wake` is
    called when something should not wait.
    """

    def __init__(self, lock: threading.Lock, backlog: Backlog, max_bytes: int) -> None:
        self.is_usable = False
        self.wake: Callable[[], None] = lambda: None
        self.run_bytes = 0
        self.away = {False: 0, True: 0}
        self.are_gaps_new = False
        self._lock, self._backlog, self._max_bytes = lock, backlog, max_bytes
        self._new: dict[int, Entry] = {}  # until the transaction that writes them has ended well
        self._here: dict[int, bool] = {}  # in memory and in the store: whether on the disk, else in the first place
        self._gone_from_run: set[int] = set()  # settled, and their rows may still be there
        self._gone_from_disk: set[int] = set()
        self._sent: set[int] = set()  # of those that are away
        self._newly_away = {False: math.inf, True: math.inf}
        self._last: dict[SeqKey, int] = {}
        backlog.may_send = lambda ticket: not self.is_usable or self._here.get(ticket, False)

    # -- of the queue, which holds its lock

    def accept(self, entry: Entry) -> None:
        """Put a new numbered message in its lane; it is to be written."""
        number = entry.number
        assert number is not None
        self._last[number.account] = number.seq
        self._new[entry.ticket] = entry
        self._backlog.append(entry)
        if entry.is_event:
            self.wake()

    def settle(self, ticket: int) -> None:
        """Forget a message: it was delivered, or dropped and declared."""
        if self._new.pop(ticket, None) is not None or ticket not in self._here:
            return
        self._gone_from_run.add(ticket)
        if self._here.pop(ticket):
            self._gone_from_disk.add(ticket)

    def put_away(self, entry: Entry) -> bool:
        """Take a message out of memory if it is in the store; return whether it is."""
        ticket = entry.ticket
        if self._here.pop(ticket, None) is None:
            return False
        self.add_away({ticket: entry.is_event})
        if entry.was_sent:
            self._sent.add(ticket)
        return True

    def is_here(self, ticket: int) -> bool:
        """Return whether a message is in memory and in the store."""
        return ticket in self._here

    def add_away(self, found: Mapping[int, bool]) -> int:
        """Record which of these messages (ticket, is event) are in the store only; return how many."""
        away = {ticket: is_event for ticket, is_event in found.items() if self.is_away(ticket)}
        for ticket, is_event in away.items():
            self.away[is_event] += 1
            for first in (self._backlog.first_away, self._newly_away):
                first[is_event] = min(first[is_event], ticket)
        return len(away)

    def drop_away(self, ticket: int, *, is_event: bool) -> bool:
        """Drop one that is in the store only; return whether it was."""
        if not self.is_away(ticket):
            return False
        self._gone_from_run.add(ticket)
        self._gone_from_disk.add(ticket)
        self._sent.discard(ticket)
        self._less_away(1, is_event=is_event)
        return True

    def is_away(self, ticket: int) -> bool:
        """Return whether a row that was read is of a message that is not in memory and not settled."""
        known = (self._gone_from_run, self._gone_from_disk, self._here, self._new)
        return not any(ticket in tickets for tickets in known)

    def was_sent(self, ticket: int) -> bool:
        """Return whether this start has sent one that is away."""
        return ticket in self._sent

    def lose(self, entries: Iterable[Entry], found: Mapping[int, bool], *, is_disk: bool) -> int:
        """Record that a place is lost, of what is in memory, and of what the other place has (ticket, is event).

        What was in it and is in memory is new again; return how many others are gone.
        """
        before = sum(self.away.values())
        for entry in entries:
            if self._here.get(entry.ticket) == is_disk:
                del self._here[entry.ticket]
                self._new[entry.ticket] = entry
        self.away = {False: 0, True: 0}
        self._newly_away = {False: math.inf, True: math.inf}
        self._backlog.first_away.update(self._newly_away)
        self.add_away(found)
        self.are_gaps_new = True
        return max(0, before - sum(self.away.values()))

    # -- of the thread that writes

    @contextlib.contextmanager
    def batch(self) -> Iterator[tuple[Sequence[Entry], Set[int], Mapping[SeqKey, int]]]:
        """Give the next transaction of the first place: entries to write, tickets whose rows go, how far accounts are
        kept then. Where it raises, nothing of it is written; else it is there.

        What is settled meanwhile goes from there with the next one.
        """
        with self._lock:
            entries, gone, reached = list(self._new.values()), set(self._gone_from_run), dict(self._last)
        yield entries, gone, reached
        with self._lock:
            self._gone_from_run -= gone
            for entry in entries:
                if self._new.pop(entry.ticket, None) is None:
                    self._gone_from_run.add(entry.ticket)
                else:
                    self._here[entry.ticket] = False

    def moved(self, tickets: Iterable[int]) -> None:
        """Record what has been moved to the disk: its events may be sent."""
        with self._lock:
            for ticket in tickets:
                if ticket in self._here:
                    self._here[ticket] = True
                elif ticket in self._gone_from_run:
                    self._gone_from_disk.add(ticket)
            self.is_usable = True

    @contextlib.contextmanager
    def gone_from_disk(self) -> Iterator[set[int]]:
        """Give the tickets of rows that the disk is to delete; where that raises, they are still there."""
        with self._lock:
            gone = set(self._gone_from_disk)
        yield gone
        with self._lock:
            self._gone_from_disk -= gone

    def has_news(self) -> bool:
        """Return whether something in the first place is settled, something is new, or another gap record waits."""
        with self._lock:
            return bool(self._new or self._gone_from_run) or self.are_gaps_new

    def is_disk_settled(self, tickets: Iterable[int]) -> bool:
        """Return whether all that is on the disk has been delivered, or is declared."""
        with self._lock:
            return not any(self._here.get(ticket) or self.is_away(ticket) for ticket in tickets)

    def has_gone_from_disk(self) -> bool:
        return bool(self._gone_from_disk)

    def relieve(self) -> None:
        """Keep the newest late messages in the store only, where memory holds more than it should."""
        with self._lock:
            self._backlog.age()
            while self._backlog.size_bytes > self._max_bytes // _MEMORY_SHARE:
                entry = self._backlog.take_newest_late(self.is_here, least=_AHEAD)
                if entry is None or not self.put_away(entry):
                    break

    def wanted(self, *, is_event: bool) -> int | None:
        """Return from which ticket on messages should come back from the store, until `came_back`; None: none now."""
        with self._lock:
            first = self._backlog.first_away[is_event]
            if not self.away[is_event] or self._backlog.ahead(_AHEAD, is_event=is_event) >= _AHEAD:
                return None
            self._newly_away[is_event] = math.inf
            return int(first)

    def came_back(self, entries: Mapping[int, tuple[Entry, bool]], beyond: int | None, *, is_event: bool) -> int:
        """Put messages (by ticket, each with whether it is on the disk) in their lane; `beyond` may be more of them.

        Returns how many should be there and are nowhere.
        """
        with self._lock:
            self._backlog.insert([entry for entry, _ in entries.values()], is_event=is_event)
            for ticket, (_, is_on_disk) in entries.items():
                self._here[ticket] = is_on_disk
            self._sent.difference_update(entries)
            self._less_away(len(entries), is_event=is_event)
            if not self.away[is_event]:
                return 0
            first = min(self._newly_away[is_event], math.inf if beyond is None else beyond)
            if first == math.inf:
                return self.away[is_event]
            self._backlog.first_away[is_event] = first
            return 0

    def _less_away(self, count: int, *, is_event: bool) -> None:
        self.away[is_event] = max(0, self.away[is_event] - count)
        if not self.away[is_event]:
            self._backlog.first_away[is_event] = math.inf
