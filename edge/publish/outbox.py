"""The bounded queue between those who publish and the one thread that sends. In memory: it ends with the process.

Three lanes, sent in this order: retained messages (only the latest of each topic, and all of them again after a
reconnect), gap records, everything else. Only the last lane is bounded by letting go: the oldest go first, and each
run of numbers that is let go becomes one gap record. For numbered messages this always holds:

    numbered = acknowledged + waiting + in gaps + lost

where `lost`, what could not even be declared, stays 0 unless the broker refuses the gap records or the output ends
before they are sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from edge.deadline import Deadline
from edge.publish.entry import Entry, GapRun, Number, entry_from_message
from edge.publish.messages import GapReason

__all__ = ["Outbox"]

# How far below its bounds the queue goes when it overflows: runs of lost numbers are long then, and records few.
_EVICTION_SHARE = 8
# From so many waiting gap records on, new ones are merged over delivered numbers (`exact` false) instead of added.
_MAX_RUNS = 256


class Outbox:
    """Thread-safe; no call blocks longer than a few microseconds except `wait_idle`.

    `take` moves an entry into flight; it stays there until `acknowledge`, `park` or `put_back`.
    """

    def __init__(self, *, device: str, max_bytes: int = 8 << 20, max_count: int = 100_000) -> None:
        self._device = device
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._retained: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._settled: set[Entry] = set()
        self._gaps: deque[Entry] = deque()
        self._runs: deque[GapRun] = deque()
        self._open_runs: dict[str, GapRun] = {}
        self._queue: deque[Entry] = deque()
        self._queue_bytes = 0
        self._in_flight: dict[Entry, None] = {}
        self._accepted = self._delivered = self._superseded = self._let_go = self._resent = 0
        self._numbered = self._acknowledged = self._declared = self._lost = 0
        self._is_over = False

    def put(self, entry: Entry) -> None:
        """Accept an entry; older ones may be let go for it."""
        with self._lock:
            self._accepted += 1
            if entry.is_retained:
                self._put_retained(entry)
                return
            self._numbered += entry.number is not None
            self._queue.append(entry)
            self._queue_bytes += entry.cost_bytes
            if self._queue_bytes > self._max_bytes or len(self._queue) > self._max_count:
                self._evict()

    def refresh(self, entry: Entry) -> None:
        """Put a newer wording of a topic's retained message: not counted again while the older one is unsent."""
        with self._lock:
            before = self._retained.get(entry.topic)
            is_unsent = before is not None and entry.topic in self._unsent and not self._is_settled(before)
            self._accepted += not is_unsent
            self._retained[entry.topic] = entry
            self._unsent[entry.topic] = None

    def take(self) -> Entry | None:
        """Return the next entry to send, now in flight; None when there is none."""
        with self._lock:
            entry = self._next()
            if entry is not None:
                self._in_flight[entry] = None
            return entry

    def acknowledge(self, entry: Entry) -> None:
        """Settle an entry that has arrived."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is entry:
                return
            if self._is_settled(entry):
                self._resent += 1
            else:
                self._delivered += 1
                self._acknowledged += entry.number is not None
            self._settle(entry)
            self._notify_if_idle()

    def park(self, entry: Entry, reason: GapReason) -> None:
        """Give up an entry in flight that will never be accepted; its number is declared."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is not entry:
                self._forget(entry, reason)
                self._notify_if_idle()

    def put_back(self, entry: Entry) -> None:
        """Return an entry in flight to the head of its lane, to be taken again."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is not entry:
                self._return(entry)

    def put_back_all(self) -> None:
        """Return everything in flight in its order, and every retained message: the connection was lost."""
        with self._lock:
            for entry in reversed(self._in_flight):
                self._return(entry)
            self._in_flight.clear()
            self._unsent = dict.fromkeys(self._retained)

    def end(self) -> int:
        """Nothing is sent from now on: return how many messages are left, which stay counted as `waiting`."""
        with self._lock:
            if not self._is_over:
                self._lose_records()
                self._is_over = True
                self._idle.notify_all()
            return self._waiting()

    def drop_all(self) -> int:
        """Let everything go, the output is gone for good; return how many messages that were."""
        with self._lock:
            left = self._waiting()
            self._let_go += left
            self._lose_records()
            self._lost += sum(entry.number is not None for entry in (*self._in_flight, *self._queue))
            for lane in (self._unsent, self._gaps, self._runs, self._open_runs, self._queue, self._in_flight):
                lane.clear()
            self._queue_bytes = 0
            self._idle.notify_all()
            return left

    def retained(self, topic: str) -> Entry | None:
        """Return the latest retained entry of a topic."""
        with self._lock:
            return self._retained.get(topic)

    def has_more(self) -> bool:
        """Return whether `take` would give something."""
        with self._lock:
            return bool(self._unsent or self._gaps or self._runs or self._queue)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until everything accepted is settled, or nothing more is sent; return whether it is settled."""
        deadline = Deadline.after(timeout_s)
        with self._idle:
            while self._waiting():
                if deadline.is_over or self._is_over:
                    return False
                self._idle.wait(deadline.left_s)
            return True

    def counts(self) -> Mapping[str, int]:
        """Return the balance of all messages, and that of the numbered ones; retransmissions are `resent`.

        A state that replaces one that was not sent yet is its newer wording: the two are one message, and `superseded`
        tells of them outside the balance.
        """
        with self._lock:
            return {
                "accepted": self._accepted - self._superseded,
                "delivered": self._delivered,
                "waiting": self._waiting(),
                "dropped": self._let_go,
                "superseded": self._superseded,
                "resent": self._resent,
                "in_flight": len(self._in_flight),
                "waiting_bytes": self._queue_bytes,
                "numbered": self._numbered,
                "numbered_acknowledged": self._acknowledged,
                "numbered_waiting": self._numbered - self._acknowledged - self._declared - self._lost,
                "numbered_in_gaps": self._declared,
                "numbered_lost": self._lost,
            }

    def _put_retained(self, entry: Entry) -> None:
        before = self._retained.get(entry.topic)
        if before is not None and entry.topic in self._unsent and not self._is_settled(before):
            self._superseded += 1
        self._retained[entry.topic] = entry
        self._unsent[entry.topic] = None

    def _next(self) -> Entry | None:
        if self._unsent:
            topic = next(iter(self._unsent))
            del self._unsent[topic]
            return self._retained[topic]
        if self._gaps:
            return self._gaps.popleft()
        if self._runs:
            run = self._runs.popleft()
            if self._open_runs.get(run.first.stream) is run:
                del self._open_runs[run.first.stream]
            return entry_from_message(run.message(self._device))
        if not self._queue:
            return None
        entry = self._queue.popleft()
        self._queue_bytes -= entry.cost_bytes
        return entry

    def _evict(self) -> None:
        """Let the oldest go until an eighth of the bounds is free."""
        max_bytes = self._max_bytes - self._max_bytes // _EVICTION_SHARE
        max_count = self._max_count - self._max_count // _EVICTION_SHARE
        while self._queue and (self._queue_bytes > max_bytes or len(self._queue) > max_count):
            entry = self._queue.popleft()
            self._queue_bytes -= entry.cost_bytes
            self._forget(entry, "spool-bytes")

    def _forget(self, entry: Entry, reason: GapReason) -> None:
        if self._is_settled(entry):
            return
        self._let_go += 1
        self._declared -= entry.gap_count
        self._lost += entry.gap_count
        self._settle(entry)
        if entry.number is not None:
            self._declare(entry.number, reason)

    def _declare(self, number: Number, reason: GapReason) -> None:
        self._declared += 1
        run = self._open_runs.get(number.stream)
        is_few = len(self._runs) < _MAX_RUNS
        if run is None or not run.takes(number, reason, is_contiguous_only=is_few):
            run = GapRun(reason, number, number)
            self._runs.append(run)
            self._open_runs[number.stream] = run
            self._accepted += 1

    def _lose_records(self) -> None:
        """Count the numbers of gap records that will not be sent: nothing declares them."""
        undeclared = sum(entry.gap_count for entry in (*self._gaps, *self._in_flight))
        undeclared += sum(run.count for run in self._runs)
        self._declared -= undeclared
        self._lost += undeclared

    def _return(self, entry: Entry) -> None:
        if entry.is_retained:
            if self._retained[entry.topic] is entry:
                self._unsent[entry.topic] = None
            elif not self._is_settled(entry):
                self._superseded += 1
        elif entry.gap_count:
            self._gaps.appendleft(entry)
        else:
            self._queue.appendleft(entry)
            self._queue_bytes += entry.cost_bytes

    def _is_settled(self, entry: Entry) -> bool:
        """Whether a retained entry has been counted already: it is only being sent again."""
        return entry in self._settled

    def _settle(self, entry: Entry) -> None:
        """Remember that a retained entry is counted, for as long as it is sent again or may be."""
        if entry.is_retained:
            known = {*self._settled, entry}
            self._settled = {e for e in known if e in self._in_flight or self._retained.get(e.topic) is e}

    def _waiting(self) -> int:
        unsent = sum(not self._is_settled(self._retained[topic]) for topic in self._unsent)
        in_flight = sum(not self._is_settled(entry) for entry in self._in_flight)
        return unsent + in_flight + len(self._gaps) + len(self._runs) + len(self._queue)

    def _notify_if_idle(self) -> None:
        if not (self._in_flight or self._queue or self._unsent) and not self._waiting():
            self._idle.notify_all()
