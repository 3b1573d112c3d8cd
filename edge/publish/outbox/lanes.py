"""The lanes of a bounded queue: events first, dropped last; then new messages, and late ones behind them.

New messages are taken in turns of the streams: a sender that cannot keep up is fair to them.

Older messages of a lane may be in the store only: then what is here of it waits until those are.

Retained messages have no lane: the latest of each topic is sent, and all again after a reconnect.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from edge.publish.messages import GapMessage, GapReason
from edge.publish.outbox.message import Entry, Number, entry_from_message, made_by, replay_of

__all__ = ["Backlog", "Losses", "Retained"]

# From so many waiting gap records on, new ones are merged over delivered numbers (`exact` false) instead of added.
_MAX_GROWING = 256
# A message is not held for ever by others that do not get through: those of a disk that does not answer, or late ones
# of a broker that is too slow for them.
_PATIENCE_S = 30.0


class _Turns:
    """Messages of streams that are taken in turns, those of each in their order: a quiet one waits for no busy one."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Entry]] = {}  # in the order of their turns; none is empty

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Entry]:
        return itertools.chain.from_iterable(self._of.values())

    def append(self, entry: Entry) -> None:
        self._of.setdefault(_stream_of(entry), deque()).append(entry)

    def appendleft(self, entry: Entry) -> None:
        """Return an entry to the head of its stream, which is the next one."""
        stream = _stream_of(entry)
        known = self._of.pop(stream, deque())
        known.appendleft(entry)
        self._of = {stream: known, **self._of}

    def popleft(self) -> Entry:
        """Return the head of the stream whose turn it is; the next turn is another's."""
        return self.pop_of(next(iter(self._of)))

    def oldest(self) -> Entry:
        return min((of_stream[0] for of_stream in self._of.values()), key=lambda entry: entry.ticket)

    def pop_of_busiest(self) -> Entry:
        return self.pop_of(max(self._of, key=lambda stream: len(self._of[stream])))

    def pop_of(self, stream: str) -> Entry:
        entries = self._of.pop(stream)
        entry = entries.popleft()
        if entries:
            self._of[stream] = entries
        return entry


def _stream_of(entry: Entry) -> str:
    return "" if entry.number is None else entry.number.stream


class Backlog:
    """Lanes, each in the order of acceptance. Not thread-safe: an outbox holds its lock.

    `late` counts those that were live before. `first_away`, by whether it is events', is the first ticket that is in
    the store only, or infinity. An event that `may_send` holds back holds back those behind it.
    """

    def __init__(self, *, live_s: float, now_s: Callable[[], float]) -> None:
        self._events: deque[Entry] = deque()
        self._live = _Turns()
        self._replay: deque[Entry] = deque()
        self._live_s = live_s
        self._now_s = now_s
        self.may_send: Callable[[int], bool] = lambda ticket: True
        self.size_bytes = 0
        self.late = 0
        self.first_away = {False: math.inf, True: math.inf}

    def __len__(self) -> int:
        return len(self._events) + len(self._live) + len(self._replay)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._events
        yield from self._replay
        yield from self._live

    @property
    def replays(self) -> int:
        return len(self._replay)

    def has_more(self, *, may_replay: bool) -> bool:
        return self._next_lane(may_replay=may_replay) is not None

    def append(self, entry: Entry) -> None:
        (self._events if entry.is_event else self._live).append(entry)
        self.size_bytes += entry.cost_bytes

    def take(self, *, may_replay: bool) -> Entry | None:
        lane = self._next_lane(may_replay=may_replay)
        return None if lane is None else self._pop(lane)

    def take_oldest(self) -> Entry:
        """Return the next one to drop, an event only where there is nothing else; there has to be one."""
        if self._live and not self._replay:
            return self._counted_out(self._live.pop_of_busiest())
        return self._pop(self._replay or self._events)

    def take_newest_late(self, may_go: Callable[[int], bool], *, least: int) -> Entry | None:
        """Return the newest late one, or event, whose ticket may go, if `least` of them stay."""
        for lane in (self._replay, self._events):
            if len(lane) > least and may_go(lane[-1].ticket):
                self.size_bytes -= lane[-1].cost_bytes
                return lane.pop()
        return None

    def take_ticket(self, ticket: int) -> Entry | None:
        """Return the one with this ticket if it is an event or late, and the oldest of those."""
        for lane in (self._replay, self._events):
            if lane and lane[0].ticket == ticket:
                return self._pop(lane)
        return None

    def ahead(self, most: int, *, is_event: bool) -> int:
        """Return how many, up to `most`, may be sent before the first that is in the store only."""
        lane = self._events if is_event else self._replay
        return sum(entry.ticket < self.first_away[is_event] for entry in itertools.islice(lane, most))

    def insert(self, older: Iterable[Entry], *, is_event: bool) -> None:
        """Add those that have come back from the store, or have become late, in their order, among the others."""
        lane = self._events if is_event else self._replay
        before: list[Entry] = []
        for entry in older:
            self.size_bytes += entry.cost_bytes
            if not lane or lane[-1].ticket < entry.ticket:
                lane.append(entry)
                continue
            while lane[0].ticket < entry.ticket:
                before.append(lane.popleft())
            before.append(entry)
        lane.extendleft(reversed(before))

    def put_back(self, entry: Entry) -> None:
        """Return one to the head of its lane."""
        lane = self._events if entry.is_event else self._live
        (self._replay if entry.is_replay else lane).appendleft(entry)
        self.size_bytes += entry.cost_bytes

    def age(self) -> None:
        """Move messages that have waited too long to be live to the late ones."""
        oldest_s = self._now_s() - self._live_s
        late: list[Entry] = []
        while self._live:
            oldest = self._live.oldest()
            if oldest.accepted_at_s >= oldest_s or not oldest.may_be_replayed:
                break
            late.append(replay_of(self._counted_out(self._live.pop_of(_stream_of(oldest)))))
        self.late += len(late)
        self.insert(late, is_event=False)

    def first_of(self, stream: str) -> float:
        """Return a ticket of a stream that waits, or of whatever stream in the store only; infinity: none."""
        mine = (entry.ticket for entry in self if _stream_of(entry) == stream)
        away = min(self.first_away.values())
        return away if math.isfinite(away) else next(mine, away)

    def _next_lane(self, *, may_replay: bool) -> deque[Entry] | _Turns | None:
        if self._events:
            ticket = self._events[0].ticket
            if ticket < self.first_away[True] and self.may_send(ticket):
                return self._events
        if self._live:
            return self._live
        if may_replay and self._replay and self._replay[0].ticket < self.first_away[False]:
            return self._replay
        return None

    def _pop(self, lane: deque[Entry] | _Turns) -> Entry:
        return self._counted_out(lane.popleft())

    def _counted_out(self, entry: Entry) -> Entry:
        self.size_bytes -= entry.cost_bytes
        return entry


class Losses:
    """The numbers of dropped messages, as gap records that grow until they are sent, each with an identity: never
    evicted.
    """

    def __init__(self, *, device: str, next_id: Callable[[], int]) -> None:
        self._device = device
        self._next_id = next_id
        self._records: deque[Entry] = deque()  # made already: they were sent, and came back
        self._growing: dict[int, GapMessage] = {}
        self._newest: dict[tuple[str, str], int] = {}  # by stream and kind

    def __len__(self) -> int:
        return len(self._records) + len(self._growing)

    @property
    def numbers(self) -> int:
        """How many numbers the waiting records name."""
        return sum(entry.gap_count for entry in self._records) + sum(gap.count or 0 for gap in self._growing.values())

    def add(self, entry: Entry, reason: GapReason) -> bool:
        """Return whether that makes one more record."""
        number, is_exact = entry.number, not entry.was_sent
        assert number is not None
        newest = self._growing.get(identity := self._newest.get((number.stream, number.of), 0))
        is_many = len(self._growing) >= _MAX_GROWING
        grown = None if newest is None else _grown(newest, number, reason, is_exact=is_exact, may_skip=is_many)
        if grown is not None:
            self._growing[identity] = grown
            return False
        self._newest[number.stream, number.of] = identity = self._next_id()
        self._growing[identity] = GapMessage(
            device=entry.device(self._device),
            stream=number.stream,
            epoch=number.epoch,
            from_=number.seq,
            to=number.seq,
            count=1,
            reason=reason,
            first_at=number.captured_at,
            last_at=number.captured_at,
            exact=is_exact,
            of=number.of,
        )
        return True

    def take(self) -> Entry | None:
        if self._records:
            return self._records.popleft()
        if not self._growing:
            return None
        identity = next(iter(self._growing))
        return self._record(identity, self._growing.pop(identity))

    def put_back(self, entry: Entry) -> None:
        self._records.appendleft(entry)

    def extend(self, gaps: Mapping[int, GapMessage]) -> int:
        """Add records that were made elsewhere; return how many numbers they name."""
        entries = [self._record(one, gap) for one, gap in gaps.items()]
        self._records.extend(entries)
        return sum(entry.gap_count for entry in entries)

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """Yield identity and payload of all that would be sent now."""
        yield from ((entry.ticket, entry.encode()) for entry in self._records)
        yield from ((identity, gap.encode()) for identity, gap in self._growing.items())

    def _record(self, ticket: int, gap: GapMessage) -> Entry:
        entry = made_by(gap.device, entry_from_message(gap), own=self._device)
        return msgspec.structs.replace(entry, ticket=ticket)


def _grown(gap: GapMessage, number: Number, reason: GapReason, *, is_exact: bool, may_skip: bool) -> GapMessage | None:
    """Return the record that names `number`, too; None: it needs one of its own."""
    assert gap.to is not None
    assert gap.count is not None
    if reason != gap.reason or number.epoch != gap.epoch or number.seq <= gap.to:
        return None
    is_next = number.seq == gap.to + 1 and is_exact == gap.exact
    if not is_next and not may_skip:
        return None
    return msgspec.structs.replace(
        gap, to=number.seq, count=gap.count + 1, last_at=number.captured_at, exact=gap.exact and is_next
    )


@dataclass(slots=True)
class _LastWord:
    """Waits for what was accepted before it: `before_ticket` is the ticket of the next one."""

    stream: str
    before_ticket: int
    first_unsettled: float = 0.0
    in_vain_since_s: float | None = None  # none: nothing can get through, because there is no connection

    def is_due(self, first: float, now_s: float) -> bool:
        """Return whether nothing has to go before it any more; asked while there is a connection."""
        if first != self.first_unsettled or self.in_vain_since_s is None:
            self.first_unsettled, self.in_vain_since_s = first, now_s
        return first >= self.before_ticket or now_s - self.in_vain_since_s >= _PATIENCE_S


class Retained:
    """Not thread-safe: an outbox holds its lock.

    `first_of` a stream is a ticket that a last word on it goes behind as long as it is not settled; infinity: none.
    """

    def __init__(self, *, first_of: Callable[[str], float], now_s: Callable[[], float]) -> None:
        self._first_of = first_of
        self._now_s = now_s
        self._latest: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._held: dict[str, _LastWord] = {}

    def __bool__(self) -> bool:
        """Whether one could be sent now."""
        for topic, word in list(self._held.items()):
            if word.is_due(self._first_of(word.stream), self._now_s()):
                del self._held[topic]
                self._unsent[topic] = None
        return bool(self._unsent)

    def is_latest(self, entry: Entry) -> bool:
        return self._latest.get(entry.topic) is entry

    def put(self, entry: Entry, *, before_ticket: int) -> bool:
        """Put a new one in the place of the one before; return whether that was neither sent nor settled.

        `before_ticket` is that of the next numbered message.
        """
        before, is_unsent = self._latest.get(entry.topic), entry.topic in self._unsent or entry.topic in self._held
        self._latest[entry.topic] = entry
        if entry.behind is None:
            self._held.pop(entry.topic, None)
            self._unsent[entry.topic] = None
        else:  # another wording of the same word is behind more, and has no more patience
            self._unsent.pop(entry.topic, None)
            word = self._held.setdefault(entry.topic, _LastWord(entry.behind, before_ticket))
            word.before_ticket = before_ticket
        return before is not None and is_unsent and not before.is_settled

    def take(self) -> Entry:
        """Return the next one to send; there has to be one."""
        topic = next(iter(self._unsent))
        del self._unsent[topic]
        return self._latest[topic]

    def put_back_all(self) -> None:
        """Send all again: the connection was lost."""
        self._unsent = {topic: None for topic in self._latest if topic not in self._held}
        for word in self._held.values():
            word.in_vain_since_s = None

    def remove(self, entry: Entry) -> None:
        """Do not send it again with the next connection."""
        if self.is_latest(entry):
            del self._latest[entry.topic]

    def settle(self, entry: Entry) -> None:
        """Record that one is counted as delivered: it is only sent again."""
        if self.is_latest(entry):
            self._latest[entry.topic] = msgspec.structs.replace(entry, is_settled=True)

    def waiting(self) -> int:
        """Return how many wait that are not counted yet."""
        return sum(not self._latest[topic].is_settled for topic in (*self._unsent, *self._held))
