"""The bounded queue between those who publish and the one thread that sends. In memory: it ends with the process.

Lanes, sent in this order: retained messages (only the latest of each topic, and all of them again after a reconnect),
gap records, everything else as it comes, and at last the replay: detections that have waited longer than `live_s`. Only
the last two are bounded by letting go: the oldest go first, and each run of numbers that is let go becomes one gap
record. One message may stand outside of the lanes: the suspect at which connections break, to be sent alone.

For numbered messages this always holds:

    numbered = acknowledged + waiting + in gaps + lost

where `lost`, what could not even be declared, stays 0 unless the broker refuses the gap records or the output ends
before they are sent.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from edge.deadline import Deadline
from edge.publish.messages import GapReason
from edge.publish.outbox.backlog import Backlog
from edge.publish.outbox.entry import Entry, entry_from_message
from edge.publish.outbox.kept import Kept, Left
from edge.publish.outbox.losses import Losses

__all__ = ["Outbox"]

# How far below its bounds the queue goes when it overflows: runs of lost numbers are long then, and records few.
_EVICTION_SHARE = 32
# So many late messages change their lane at a time: nobody waits for a long queue to be turned over.
_AGED_PER_PUT = 4
_AGED_PER_TAKE = 64


class Outbox:
    """Thread-safe; no call blocks longer than a few microseconds except `wait_idle`.

    `take` moves an entry into flight; it stays there until `acknowledge`, `park` or `put_back`.
    """

    def __init__(
        self,
        *,
        device: str,
        max_bytes: int = 8 << 20,
        max_count: int = 100_000,
        live_s: float = math.inf,
        now_s: Callable[[], float] = time.monotonic,
        kept: Kept | None = None,
    ) -> None:
        self._kept = kept
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._retained: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._settled: set[Entry] = set()
        self._losses = Losses(device=device)
        self._backlog = Backlog(live_s=live_s, now_s=now_s)
        self._suspect: Entry | None = None
        self._in_flight: dict[Entry, None] = {}
        self._accepted = self._delivered = self._superseded = self._let_go = self._resent = 0
        self._numbered = self._acknowledged = self._declared = self._lost = self._sent_again = 0
        self._is_over = False

    def put(self, entry: Entry) -> None:
        """Accept an entry; older ones may be let go for it."""
        with self._lock:
            self._accepted += 1
            if entry.is_retained:
                self._put_retained(entry)
                return
            self._numbered += entry.number is not None
            self._backlog.append(self._stored(entry))
            self._backlog.age(_AGED_PER_PUT)
            if self._backlog.size_bytes > self._max_bytes or len(self._backlog) > self._max_count:
                self._evict(self._max_bytes, self._max_count)

    def restore(self, left: Left) -> None:
        """Take over what an earlier start has kept, to be sent as late, in its order."""
        with self._lock:
            gaps = [entry_from_message(gap) for gap in left.gaps]
            self._losses.extend(gaps)
            self._accepted += len(left.entries) + len(gaps)
            declared = sum(gap.gap_count for gap in gaps)
            self._declared += declared
            self._numbered += declared + sum(entry.number is not None for entry in left.entries)
            for entry in left.entries:
                self._backlog.append_late(entry)

    def refresh(self, entry: Entry) -> None:
        """Put a newer wording of a topic's retained message: not counted again while the older one is unsent."""
        with self._lock:
            before = self._retained.get(entry.topic)
            is_unsent = before is not None and self._is_unsent(before) and not self._is_settled(before)
            self._accepted += not is_unsent
            self._replace_retained(entry)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_over

    @property
    def late(self) -> int:
        """How many messages were too late to be live so far."""
        return self._backlog.late

    @property
    def has_replay(self) -> bool:
        """Whether late messages wait."""
        return self._backlog.replays > 0

    def take(self, *, may_replay: bool = True) -> Entry | None:
        """Return the next entry to send, now in flight; None when there is none."""
        with self._lock:
            self._backlog.age(_AGED_PER_TAKE)
            entry = self._next(may_replay=may_replay)
            if entry is not None:
                self._in_flight[entry] = None
                self._sent_again += entry.was_sent and entry.number is not None
                if entry.slot is not None:
                    entry.slot.mark_sent()
            return entry

    def acknowledge(self, entry: Entry) -> None:
        """Settle an entry that has arrived."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is entry:
                return
            self._clear_suspect(entry)
            if self._is_settled(entry):
                self._resent += 1
            else:
                self._delivered += 1
                self._acknowledged += entry.number is not None
            self._settle(entry)
            if entry.slot is not None:
                entry.slot.settle()
            if entry.gap_count:
                self._commit()
            self._notify_if_idle()

    def park(self, entry: Entry, reason: GapReason) -> None:
        """Give up an entry in flight that will never be accepted; its number is declared."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is not entry:
                self._clear_suspect(entry)
                self._give_up(entry, reason)

    def park_suspect(self, reason: GapReason) -> None:
        """Give up the suspect, which is not in flight."""
        with self._lock:
            entry = self._suspect
            if entry is not None:
                self._suspect = None
                self._give_up(entry, reason)

    def put_back(self, entry: Entry) -> None:
        """Return an entry in flight to the head of its lane, to be taken again."""
        with self._lock:
            if self._in_flight.pop(entry, entry) is not entry:
                self._return(entry)

    def put_back_all(self, suspect: Entry | None = None) -> None:
        """Return everything in flight in its order, and every retained message: the connection was lost.

        `suspect`, one of those in flight, is the next of all that are not retained, and waits outside of the bounds.
        """
        with self._lock:
            before, self._suspect = self._suspect, None
            chosen = suspect or before
            for entry in reversed(self._in_flight):
                sent = entry if entry.is_retained else msgspec.structs.replace(entry, was_sent=True)
                if entry is chosen:
                    self._suspect = sent
                self._return(sent)
            if before is not None and before not in self._in_flight:
                if before is chosen:
                    self._suspect = before
                self._return(before)
            self._in_flight.clear()
            self._backlog.age_returned()
            self._unsent = {topic: None for topic, latest in self._retained.items() if latest is not self._suspect}

    def end(self) -> int:
        """Nothing is sent from now on: return how many messages are left, which stay counted as `waiting`."""
        with self._lock:
            if not self._is_over:
                if self._kept is None:
                    self._lose_records()
                else:
                    self._kept.close()
                self._is_over = True
                self._idle.notify_all()
            return self._waiting()

    def drop_all(self) -> int:
        """Let everything go, the output is gone for good; return how many messages that were."""
        with self._lock:
            left = self._waiting()
            self._let_go += left
            self._lose_records()
            self._lost += sum(entry.number is not None for entry in self._undelivered())
            for lane in (self._unsent, self._losses, self._in_flight, self._backlog):
                lane.clear()
            self._suspect = None
            self._idle.notify_all()
            return left

    def retained(self, topic: str) -> Entry | None:
        """Return the latest retained entry of a topic."""
        with self._lock:
            return self._retained.get(topic)

    def has_more(self, *, may_replay: bool = True) -> bool:
        """Return whether `take` would give something."""
        with self._lock:
            self._backlog.age(_AGED_PER_TAKE)
            if self._unsent or self._losses or self._is_suspect_waiting():
                return True
            return self._backlog.has_more(may_replay=may_replay)

    def oldest_s(self) -> float:
        """Return how long the oldest message has waited that is not retained; 0 where there is none."""
        with self._lock:
            return self._backlog.oldest_s()

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
                "waiting_bytes": self._backlog.size_bytes,
                "numbered": self._numbered,
                "numbered_acknowledged": self._acknowledged,
                "numbered_waiting": self._numbered - self._acknowledged - self._declared - self._lost,
                "numbered_in_gaps": self._declared,
                "numbered_lost": self._lost,
                "numbered_sent_again": self._sent_again,
                "numbered_late": self._backlog.late,
                "replay_waiting": self._backlog.replays,
            }

    def _give_up(self, entry: Entry, reason: GapReason) -> None:
        self._forget(entry, reason)
        self._commit()
        if self._retained.get(entry.topic) is entry:  # not again with the next connection
            del self._retained[entry.topic]
        self._notify_if_idle()

    def _clear_suspect(self, entry: Entry) -> None:
        if entry is self._suspect:
            self._suspect = None

    def _put_retained(self, entry: Entry) -> None:
        before = self._retained.get(entry.topic)
        if before is not None and self._is_unsent(before) and not self._is_settled(before):
            self._superseded += 1
        self._replace_retained(entry)

    def _is_unsent(self, entry: Entry) -> bool:
        return entry.topic in self._unsent or (entry is self._suspect and entry not in self._in_flight)

    def _replace_retained(self, entry: Entry) -> None:
        before = self._retained.get(entry.topic)
        if before is not None and before not in self._in_flight:
            self._clear_suspect(before)
        self._retained[entry.topic] = entry
        self._unsent[entry.topic] = None

    def _next(self, *, may_replay: bool) -> Entry | None:
        if self._unsent:
            topic = next(iter(self._unsent))
            del self._unsent[topic]
            return self._retained[topic]
        if self._losses:
            return self._losses.take()
        if self._is_suspect_waiting():
            return self._suspect
        return self._backlog.take(may_replay=may_replay)

    def _stored(self, entry: Entry) -> Entry:
        """Return the entry as it is kept over the process; older ones are let go for it."""
        if self._kept is None or self._is_over:
            return entry
        while (stored := self._kept.store(entry)) is None and self._backlog:
            self._evict(self._backlog.size_bytes, len(self._backlog))
        return stored or entry

    def _evict(self, max_bytes: int, max_count: int) -> None:
        """Let the oldest go until a part of the bounds is free."""
        max_bytes -= max_bytes // _EVICTION_SHARE
        max_count -= max_count // _EVICTION_SHARE
        while self._backlog and (self._backlog.size_bytes > max_bytes or len(self._backlog) > max_count):
            self._forget(self._backlog.take_oldest(), "spool-bytes")
        self._commit()

    def _commit(self) -> None:
        """Keep what is declared over the process, and only then give up the messages that it names."""
        if self._kept is not None and not self._is_over:
            own = [*self._in_flight, self._suspect] if self._suspect not in self._in_flight else self._in_flight
            told = [entry.encode() for entry in own if entry is not None and entry.gap_count]
            self._kept.commit([*told, *self._losses.payloads()])

    def _forget(self, entry: Entry, reason: GapReason) -> None:
        if self._is_settled(entry):
            return
        self._let_go += 1
        self._declared -= entry.gap_count
        self._lost += entry.gap_count
        self._settle(entry)
        if entry.slot is not None and self._kept is not None:
            self._kept.give_up(entry.slot)
        if entry.number is not None:
            self._declared += 1
            self._accepted += self._losses.add(entry, reason)

    def _lose_records(self) -> None:
        """Count the numbers of gap records that will not be sent: nothing declares them."""
        suspected = self._suspect.gap_count if self._suspect is not None and self._is_suspect_waiting() else 0
        undeclared = self._losses.numbers + sum(entry.gap_count for entry in self._in_flight) + suspected
        self._declared -= undeclared
        self._lost += undeclared

    def _return(self, entry: Entry) -> None:
        if entry.is_retained:
            self._return_retained(entry)
        elif entry is self._suspect:
            return
        elif entry.gap_count:
            self._losses.put_back(entry)
        else:
            self._backlog.put_back(entry)

    def _return_retained(self, entry: Entry) -> None:
        if self._retained.get(entry.topic) is not entry:
            self._superseded += not self._is_settled(entry)
            self._clear_suspect(entry)
        elif entry is not self._suspect:
            self._unsent[entry.topic] = None

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
        is_suspect = self._is_suspect_waiting() and self._suspect not in self._settled
        return unsent + in_flight + len(self._losses) + len(self._backlog) + is_suspect

    def _is_suspect_waiting(self) -> bool:
        return self._suspect is not None and self._suspect not in self._in_flight

    def _undelivered(self) -> list[Entry]:
        waiting = [*self._in_flight, *self._backlog]
        return [*waiting, self._suspect] if self._suspect is not None and self._is_suspect_waiting() else waiting

    def _notify_if_idle(self) -> None:
        if not (self._in_flight or self._backlog or self._unsent) and not self._waiting():
            self._idle.notify_all()
