"""The bounded queue between those who publish and the one thread that sends.

In memory; beside it, if there are such, a ring that outlives the process (`kept`) and a file, a power cut (`spool`).

Lanes, sent in this order: retained messages (only the latest of each topic, all of them again after a reconnect; the
last word on a stream waits for its messages), gap records, everything else as it comes, and at last the replay:
detections older than `live_s`. Only the last two are bounded by letting go: the oldest go first, each run of numbers
that is let go becomes one gap record. The suspect at which connections break stands outside of the lanes, sent alone.

For numbered messages this always holds:

    numbered = acknowledged + waiting + in gaps + lost

where `lost`, what could not even be declared, stays 0 unless the broker refuses the gap records or the output ends
before they are sent.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from edge.deadline import Deadline
from edge.publish.messages import GapMessage, GapReason
from edge.publish.outbox.backlog import Backlog
from edge.publish.outbox.balance import Balance
from edge.publish.outbox.entry import Entry, entry_from_message
from edge.publish.outbox.flight import Flight
from edge.publish.outbox.kept import Kept
from edge.publish.outbox.last_word import Lanes
from edge.publish.outbox.losses import Losses
from edge.publish.outbox.retained import Retained
from edge.publish.outbox.spool import Spool

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
        spool: Spool | None = None,
        first_ticket: int = 1,
    ) -> None:
        self._kept = kept
        self._spool = spool
        self._next_ticket = first_ticket
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._losses = Losses(device=device)
        self._backlog = Backlog(live_s=live_s, now_s=now_s)
        self._flight = Flight()
        self._retained = Retained(Lanes(self._backlog, self._flight, self._losses, now_s))
        self._balance = Balance()
        self._is_over = False

    def put(self, entry: Entry) -> None:
        """Accept an entry; older ones may be let go for it."""
        with self._lock:
            self._balance.accepted += 1
            if entry.is_retained:
                self._put_retained(entry)
                return
            self._balance.numbered += entry.number is not None
            stored = self._stored(entry)
            if entry.number is None or self._spool is None:
                self._backlog.append(stored)
            else:
                self._spool.accept(stored)
            self._backlog.age(_AGED_PER_PUT)
            if self._backlog.size_bytes > self._max_bytes or len(self._backlog) > self._max_count:
                self._evict(self._max_bytes, self._max_count)

    def restore(
        self, entries: Sequence[Entry], gaps: Iterable[GapMessage], *, saved: Mapping[int, bool] | None = None
    ) -> None:
        """Take over what earlier starts have left, to be sent as late, in its order.

        Args:
            entries: what is in memory.
            gaps: records of what they had let go.
            saved: tickets of what is on the disk, and whether they are events'.
        """
        with self._lock:
            records = [entry_from_message(gap) for gap in gaps]
            self._losses.extend(records)
            away = 0 if self._spool is None else self._spool.restore(entries, saved or {})
            declared = sum(gap.gap_count for gap in records)
            self._balance.accepted += len(entries) + len(records) + away
            self._balance.declared += declared
            self._balance.numbered += declared + away + sum(entry.number is not None for entry in entries)
            for entry in entries:
                self._backlog.append_late(entry)

    def refresh(self, entry: Entry) -> None:
        """Put a newer wording of a topic's retained message: not counted again while the older one is unsent."""
        with self._lock:
            before = self._retained.latest(entry.topic)
            is_unsent = before is not None and self._is_unsent(before) and not self._retained.is_settled(before)
            self._balance.accepted += not is_unsent
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
        return self._backlog.replays > 0 or (self._spool is not None and self._spool.away[False] > 0)

    def take(self, *, may_replay: bool = True) -> Entry | None:
        """Return the next entry to send, now in flight; None when there is none."""
        with self._lock:
            self._backlog.age(_AGED_PER_TAKE)
            entry = self._next(may_replay=may_replay)
            if entry is not None:
                self._flight.add(entry)
                self._balance.sent_again += entry.was_sent and entry.number is not None
                if entry.slot is not None:
                    entry.slot.mark_sent()
            return entry

    def acknowledge(self, entry: Entry) -> None:
        """Settle an entry that has arrived."""
        with self._lock:
            if not self._flight.remove(entry):
                return
            self._flight.clear_suspect(entry)
            if self._retained.is_settled(entry):
                self._balance.resent += 1
            else:
                self._balance.delivered += 1
                self._balance.acknowledged += entry.number is not None
            self._retained.settle(entry, self._flight)
            if entry.slot is not None:
                entry.slot.settle()
            if self._spool is not None:
                self._spool.settle(entry.ticket)
            if entry.is_gap:
                self._commit()
            self._notify_if_idle()

    def park(self, entry: Entry, reason: GapReason) -> None:
        """Give up an entry in flight that will never be accepted; its number is declared."""
        with self._lock:
            if self._flight.remove(entry):
                self._flight.clear_suspect(entry)
                self._give_up(entry, reason)

    def park_suspect(self, reason: GapReason) -> None:
        """Give up the suspect, which is not in flight."""
        with self._lock:
            entry = self._flight.suspect
            if entry is not None:
                self._flight.suspect = None
                self._give_up(entry, reason)

    def put_back(self, entry: Entry) -> None:
        """Return an entry in flight to the head of its lane, to be taken again."""
        with self._lock:
            if self._flight.remove(entry):
                self._return(entry)

    def put_back_all(self, suspect: Entry | None = None) -> None:
        """Return everything in flight in its order, and every retained message: the connection was lost.

        `suspect`, one of those in flight, is the next of all that are not retained, and waits outside of the bounds.
        """
        with self._lock:
            before, self._flight.suspect = self._flight.suspect, None
            chosen = suspect or before
            for entry in reversed(self._flight):
                sent = entry if entry.is_retained else msgspec.structs.replace(entry, was_sent=True)
                if entry is chosen:
                    self._flight.suspect = sent
                self._return(sent)
            if before is not None and before not in self._flight:
                if before is chosen:
                    self._flight.suspect = before
                self._return(before)
            self._flight.clear()
            self._backlog.age_returned()
            self._retained.put_back_all(but=self._flight.suspect)

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
            self._balance.let_go += left
            self._lose_records()
            self._balance.lost += sum(entry.number is not None for entry in [*self._flight.unsettled(), *self._backlog])
            self._retained.clear_unsent()
            for lane in (self._losses, self._flight, self._backlog):
                lane.clear()
            self._flight.suspect = None
            self._idle.notify_all()
            return left

    def has_more(self, *, may_replay: bool = True) -> bool:
        """Return whether `take` would give something."""
        with self._lock:
            self._backlog.age(_AGED_PER_TAKE)
            if self._retained or self._losses or self._flight.waiting is not None:
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
                **self._balance.counts(),
                "waiting": self._waiting(),
                "in_flight": len(self._flight),
                "waiting_bytes": self._backlog.size_bytes,
                "numbered_late": self._backlog.late,
                "replay_waiting": self._backlog.replays + (0 if self._spool is None else self._spool.away[False]),
                "spool_waiting": self._away(),
            }

    def declared_by_reason(self) -> Mapping[GapReason, int]:
        """Return how many numbers this start has declared lost, by reason."""
        with self._lock:
            return dict(self._balance.by_reason)

    def _give_up(self, entry: Entry, reason: GapReason) -> None:
        self._forget(entry, reason)
        self._commit()
        self._retained.remove(entry)
        self._notify_if_idle()

    def _put_retained(self, entry: Entry) -> None:
        before = self._retained.latest(entry.topic)
        if before is not None and self._is_unsent(before) and not self._retained.is_settled(before):
            self._balance.superseded += 1
        self._replace_retained(entry)

    def _is_unsent(self, entry: Entry) -> bool:
        return self._retained.is_unsent(entry.topic) or (entry is self._flight.suspect and entry not in self._flight)

    def _replace_retained(self, entry: Entry) -> None:
        before = self._retained.latest(entry.topic)
        if before is not None and before not in self._flight:
            self._flight.clear_suspect(before)
        self._retained.put(entry, before_ticket=self._next_ticket)

    def _next(self, *, may_replay: bool) -> Entry | None:
        if self._retained:
            return self._retained.take()
        if self._losses:
            return self._losses.take()
        if self._flight.waiting is not None:
            return self._flight.suspect
        return self._backlog.take(may_replay=may_replay)

    def _stored(self, entry: Entry) -> Entry:
        """Return the entry with its ticket, as it is kept over the process; older ones are let go for it."""
        ticket = self._next_ticket
        self._next_ticket += 1
        if self._kept is None or self._is_over:
            return msgspec.structs.replace(entry, ticket=ticket)
        while (stored := self._kept.store(entry, ticket)) is None and self._backlog:
            self._evict(self._backlog.size_bytes, len(self._backlog))
        return stored or msgspec.structs.replace(entry, ticket=ticket)

    def _evict(self, max_bytes: int, max_count: int) -> None:
        """Let the oldest go from memory until a part of the bounds is free."""
        max_bytes -= max_bytes // _EVICTION_SHARE
        max_count -= max_count // _EVICTION_SHARE
        while self._backlog and (self._backlog.size_bytes > max_bytes or len(self._backlog) > max_count):
            oldest = self._backlog.take_oldest()
            if self._spool is None or not self._spool.put_away(oldest):
                self._forget(oldest, "spool-bytes")
        self._commit()

    def _commit(self) -> None:
        """Keep what is declared over the process, and only then give up the messages that it names."""
        if self._is_over:
            return
        if self._spool is not None:
            self._spool.are_gaps_new = True
        if self._kept is not None:
            self._kept.commit(self._gap_payloads())

    def _gap_payloads(self) -> list[bytes]:
        told = [entry.encode() for entry in self._flight.unsettled() if entry.is_gap]
        return [*told, *self._losses.payloads()]

    def _forget(self, entry: Entry, reason: GapReason) -> None:
        if self._retained.is_settled(entry):
            return
        self._balance.let_go += 1
        self._balance.declared -= entry.gap_count
        self._balance.lost += entry.gap_count
        self._retained.settle(entry, self._flight)
        if entry.slot is not None and self._kept is not None:
            self._kept.give_up(entry.slot)
        if self._spool is not None:
            self._spool.settle(entry.ticket)
        self._declare(entry, reason)

    def _declare(self, entry: Entry, reason: GapReason) -> None:
        if entry.number is not None:
            self._balance.declare(reason)
            self._balance.accepted += self._losses.add(entry, reason)

    def _lose_records(self) -> None:
        """Count the numbers of gap records that will not be sent: nothing declares them."""
        undeclared = self._losses.numbers + sum(entry.gap_count for entry in self._flight.unsettled())
        self._balance.declared -= undeclared
        self._balance.lost += undeclared

    def _return(self, entry: Entry) -> None:
        if entry.is_retained:
            self._return_retained(entry)
        elif entry is self._flight.suspect:
            return
        elif entry.is_gap:
            self._losses.put_back(entry)
        else:
            self._backlog.put_back(entry)

    def _return_retained(self, entry: Entry) -> None:
        if not self._retained.is_latest(entry):
            self._balance.superseded += not self._retained.is_settled(entry)
            self._flight.clear_suspect(entry)
        elif entry is not self._flight.suspect:
            self._retained.put_back(entry)

    def _away(self) -> int:
        """Return how many messages are on the disk only."""
        return 0 if self._spool is None else self._spool.away[False] + self._spool.away[True]

    def _waiting(self) -> int:
        unsettled = sum(not self._retained.is_settled(entry) for entry in self._flight.unsettled())
        return self._retained.waiting() + unsettled + len(self._losses) + len(self._backlog) + self._away()

    def _notify_if_idle(self) -> None:
        if not (self._flight or self._backlog or self._retained) and not self._waiting():
            self._idle.notify_all()
