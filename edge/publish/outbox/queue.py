"""The queue of unsent messages: bounded, acknowledged one by one, and each number that is dropped is declared.

The thread that publishes only appends to a deque; locks, order and bounds are the work of those that send and write.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from edge.deadline import Deadline
from edge.protocols import TopicMessage
from edge.publish.messages import GapMessage, GapReason
from edge.publish.outbox.lanes import Backlog, Losses, Retained
from edge.publish.outbox.message import Entry, entry_from_message, late
from edge.publish.outbox.places import Places
from edge.publish.outbox.store import PlaceDamagedError
from edge.publish.outbox.stored import Stored

__all__ = ["Outbox"]

# How far below its bounds the queue goes when it overflows: runs of lost numbers are long then, and records few.
_EVICTION_SHARE = 32
# Messages that were appended: the writer takes them in each 20 ms, the sender before it sends, and `put` this many.
_MOST_INCOMING = 64
_SETTLED = ("numbered_acknowledged", "numbered_in_gaps", "numbered_lost")
_COUNTS = ("accepted", "delivered", "dropped", "resent", "numbered", "numbered_sent_again", *_SETTLED)
_IDLE_LOOK_S = 0.01
_LOAD = 128  # rows of the store at a time
_LEAST_SHARE = 4  # of its bound, for messages in memory, whatever lies in the store


class Outbox:
    """Thread-safe; `put` is cheap, and only `wait_idle` waits.

    `take` moves an entry into flight; it stays there until `acknowledge`, `park` or `put_back_all`. `stored` is what
    lies in the store, or shall; unless `is_kept`, nothing does.
    """

    def __init__(
        self,
        *,
        device: str,
        max_bytes: int = 8 << 20,
        live_s: float = math.inf,
        now_s: Callable[[], float] = time.monotonic,
        is_kept: bool = False,
        first_ticket: int = 1,
    ) -> None:
        self._incoming: deque[Entry | TopicMessage] = deque()
        self._is_kept = is_kept
        self._next_ticket = first_ticket
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._losses = Losses(device=device, next_id=self._take_ticket)
        self._backlog = Backlog(live_s=live_s, now_s=now_s)
        self.stored = Stored(self._lock, self._backlog, max_bytes)
        self._flight: dict[Entry, None] = {}  # in the order of sending
        self._retained = Retained(first_of=self._first_of, now_s=now_s)
        # Of the numbered ones: numbered = acknowledged + waiting + in gaps + lost.
        self._counted: Counter[str] = Counter(dict.fromkeys(_COUNTS, 0))
        self._is_over = False

    def put(self, message: Entry | TopicMessage) -> None:
        """Accept a message; older ones may be dropped for it."""
        self._incoming.append(message)
        if len(self._incoming) > _MOST_INCOMING:
            with self._lock:
                self._admit()

    def _admit(self) -> None:
        """Call only with the lock held."""
        while self._incoming:
            one = self._incoming.popleft()
            self._admit_one(one if isinstance(one, Entry) else entry_from_message(one))

    def _admit_one(self, entry: Entry) -> None:
        if entry.is_retained:
            self._counted["accepted"] += not self._retained.put(entry, before_ticket=self._next_ticket)
            return
        self._counted["accepted"] += 1
        self._counted["numbered"] += entry.number is not None
        entry = msgspec.structs.replace(entry, ticket=self._take_ticket())
        if entry.number is None:
            self._backlog.append(entry)
        else:
            self.stored.accept(entry)
        self._backlog.age()
        most_bytes = max(self._max_bytes - self.stored.run_bytes, self._max_bytes // _LEAST_SHARE)
        if self._backlog.size_bytes > most_bytes:
            self._evict(most_bytes)

    def _take_ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket - 1

    def _restore(self, gaps: Mapping[int, GapMessage], losses: Iterable[GapMessage], waiting: int) -> None:
        """Take over gap records, of others and new ones, and so many messages in the store."""
        gaps = {**gaps, **{self._take_ticket(): gap for gap in losses}}
        declared = self._losses.extend(gaps)
        self._counted["accepted"] += len(gaps) + waiting
        self._counted["numbered_in_gaps"] += declared
        self._counted["numbered"] += declared + waiting
        self.stored.are_gaps_new = True

    @property
    def late(self) -> int:
        """How many messages were too late to be live so far."""
        return self._backlog.late

    @property
    def has_replay(self) -> bool:
        return self._backlog.replays > 0 or self.stored.away[False] > 0

    def take(self, *, may_replay: bool = True, may_retain: bool = True) -> Entry | None:
        with self._lock:
            self._admit()
            self._backlog.age()
            entry = self._next(may_replay=may_replay, may_retain=may_retain)
            if entry is not None:
                self._flight[entry] = None
                self._counted["numbered_sent_again"] += entry.was_sent and entry.number is not None
            return entry

    def acknowledge(self, entry: Entry) -> None:
        with self._lock:
            if not self._has_landed(entry):
                return
            if entry.is_settled:
                self._counted["resent"] += 1
            else:
                self._counted["delivered"] += 1
                self._counted["numbered_acknowledged"] += entry.number is not None
            self._retained.settle(entry)
            self.stored.settle(entry.ticket)
            self.stored.are_gaps_new |= entry.is_gap

    def park(self, entry: Entry, reason: GapReason, *, may_have_arrived: bool = False) -> None:
        """Give up an entry in flight that will never be accepted; its number is declared."""
        with self._lock:
            if self._has_landed(entry):
                self._forget(entry, reason, may_have_arrived=may_have_arrived)
                self._retained.remove(entry)

    def put_back_all(self) -> None:
        """Return everything in flight in its order, and every retained message: the connection was lost."""
        with self._lock:
            for entry in reversed(self._flight):
                self._return(entry)
            self._flight.clear()
            self._retained.put_back_all()

    def end(self) -> int:
        """Nothing is sent from now on: return how many messages are left, which stay counted as `waiting`."""
        with self._lock:
            self._admit()
            if not self._is_over:
                if not self._is_kept:  # nothing declares the numbers of records that will not be sent
                    undeclared = self._losses.numbers + sum(entry.gap_count for entry in self._flight)
                    self._counted["numbered_in_gaps"] -= undeclared
                    self._counted["numbered_lost"] += undeclared
                self._is_over = True
            return self._waiting()

    def has_more(self, *, may_replay: bool = True, may_retain: bool = True) -> bool:
        with self._lock:
            self._admit()
            self._backlog.age()
            if (may_retain and self._retained) or self._losses:
                return True
            return self._backlog.has_more(may_replay=may_replay)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until everything accepted is settled, or nothing more is sent; return whether it is settled."""
        deadline = Deadline.after(timeout_s)
        while self._is_waiting():
            if deadline.is_over or self._is_over:
                return False
            time.sleep(_IDLE_LOOK_S)
        return True

    def counts(self) -> Mapping[str, int]:
        """Return the balance of all messages, and that of the numbered ones; retransmissions are `resent`.

        A state that replaces one that was not sent yet is its newer wording, and not counted again. `declared_REASON`
        are the numbers that this start has declared lost.
        """
        with self._lock:
            self._admit()
            return {
                **self._counted,
                "numbered_waiting": self._counted["numbered"] - sum(self._counted[name] for name in _SETTLED),
                "waiting": self._waiting(),
                "in_flight": len(self._flight),
                "waiting_bytes": self._backlog.size_bytes,
                "spool_waiting": sum(self.stored.away.values()),
            }

    # -- of the thread that writes

    def admit(self) -> None:
        with self._lock:
            self._admit()

    def gap_payloads(self) -> dict[int, bytes]:
        """Return all gap records that wait or are on their way, as they are to lie in the store now."""
        with self._lock:
            told = {entry.ticket: entry.encode() for entry in self._flight if entry.is_gap}
            told.update(self._losses.payloads())
            self.stored.are_gaps_new = False
            return told

    def take_over(
        self, found: Mapping[int, bool], gaps: Mapping[int, GapMessage], losses: Iterable[GapMessage]
    ) -> None:
        """Send what earlier starts have left in the store (ticket, is event), and records of what they have lost."""
        with self._lock:
            self._restore(gaps, losses, self.stored.add_away(found))

    def load(self, places: Places, *, is_event: bool) -> bool:
        """Bring messages back from the store whose turn is near; return whether any were looked for."""
        first = self.stored.wanted(is_event=is_event)
        if first is None:
            return False
        found: dict[int, tuple[Entry, bool]] = {}
        declared: dict[int, Entry] = {}
        while len(found) < _LOAD // 2:
            rows = places.rows(first, _LOAD, is_event=is_event)
            with self._lock:
                away = [one for one in rows if self.stored.is_away(one[0].ticket)]
            for row, is_on_disk in away:
                entry = places.entry(row, was_sent=self.stored.was_sent(row.ticket))
                if places.is_declared(entry):
                    declared[row.ticket] = entry
                else:
                    is_recovered = is_on_disk and places.is_of_earlier_start(entry)
                    found[row.ticket] = late(entry, is_recovered=is_recovered), is_on_disk
            if len(rows) < _LOAD:
                first = None
                break
            first = rows[-1][0].ticket + 1
        with self._lock:
            for ticket, entry in declared.items():
                is_dropped = self.stored.drop_away(ticket, is_event=entry.is_event)
                self._counted["accepted"] -= is_dropped
                self._counted["numbered"] -= is_dropped
        missing = self.stored.came_back(found, first, is_event=is_event)
        if missing:
            raise PlaceDamagedError(f"{missing} messages that are in it are not found", places.disk or places.run)
        return True

    def drop_written(self, entries: Mapping[int, Entry], reason: GapReason) -> None:
        """Drop messages in the store, by ticket, and declare them. One on its way stays."""
        with self._lock:
            for ticket, written in entries.items():
                if self.stored.is_here(ticket):
                    entry = self._backlog.take_ticket(ticket)
                    if entry is not None:
                        self._forget(entry, reason)
                elif self.stored.drop_away(ticket, is_event=written.is_event):
                    self._counted["dropped"] += 1
                    self._declare(written, reason)

    def lose_place(self, found: Mapping[int, bool], gaps: Iterable[GapMessage], *, is_disk: bool) -> None:
        """Record that a place is damaged, of what the other one has, and declare what was in it."""
        with self._lock:
            lost = self.stored.lose([*self._flight, *self._backlog], found, is_disk=is_disk)
            for name in ("numbered_in_gaps", "dropped", "declared_spool-corrupt"):
                self._counted[name] += lost
            self._restore({}, gaps if lost else (), 0)

    def _next(self, *, may_replay: bool, may_retain: bool) -> Entry | None:
        if may_retain and self._retained:
            return self._retained.take()
        if self._losses:
            return self._losses.take()
        return self._backlog.take(may_replay=may_replay)

    def _evict(self, most_bytes: int) -> None:
        """Let the oldest go until a part of the bound is free; what no store has yet goes at the bound only."""
        kept_bytes = self._max_bytes
        if self._backlog.size_bytes > kept_bytes:
            kept_bytes -= kept_bytes // _EVICTION_SHARE
        most_bytes = min(most_bytes - most_bytes // _EVICTION_SHARE, kept_bytes)
        while self._backlog and self._backlog.size_bytes > most_bytes:
            oldest = self._backlog.take_oldest()
            if self.stored.put_away(oldest):
                continue
            if self._backlog.size_bytes + oldest.cost_bytes <= kept_bytes:
                self._backlog.put_back(oldest)
                break
            self._forget(oldest, "spool-bytes")

    def _has_landed(self, entry: Entry) -> bool:
        """Take an entry out of flight; return whether it was there."""
        return self._flight.pop(entry, entry) is None

    def _forget(self, entry: Entry, reason: GapReason, *, may_have_arrived: bool = False) -> None:
        if entry.is_settled:
            return
        self._counted["dropped"] += 1
        self._counted["numbered_in_gaps"] -= entry.gap_count
        self._counted["numbered_lost"] += entry.gap_count
        self.stored.settle(entry.ticket)
        self.stored.are_gaps_new |= entry.is_gap
        self._declare(msgspec.structs.replace(entry, was_sent=True) if may_have_arrived else entry, reason)

    def _declare(self, entry: Entry, reason: GapReason) -> None:
        if entry.number is not None:
            self._counted["numbered_in_gaps"] += 1
            self._counted[f"declared_{reason}"] += 1
            self._counted["accepted"] += self._losses.add(entry, reason)
            self.stored.are_gaps_new = True  # messages that they name are given up

    def _return(self, entry: Entry) -> None:
        if entry.is_retained:  # the latest of each topic is sent again by whatever is lost
            self._counted["accepted"] -= not (self._retained.is_latest(entry) or entry.is_settled)
            return
        entry = msgspec.structs.replace(entry, was_sent=True)
        (self._losses if entry.is_gap else self._backlog).put_back(entry)

    def _first_of(self, stream: str) -> float:
        """Return a ticket of a stream that is not settled, or of whatever stream in the store only; infinity: none.

        Below zero, and nearer to it with each, while gap records wait.
        """
        gaps = len(self._losses) + sum(entry.is_gap for entry in self._flight)
        mine = (entry.ticket for entry in self._flight if entry.number is not None and entry.number.stream == stream)
        return -gaps or next(mine, None) or self._backlog.first_of(stream)

    def _is_waiting(self) -> bool:
        with self._lock:
            self._admit()
            return self._waiting() > 0

    def _waiting(self) -> int:
        unsettled = sum(not entry.is_settled for entry in self._flight)
        away = sum(self.stored.away.values())
        return self._retained.waiting() + unsettled + len(self._losses) + len(self._backlog) + away
