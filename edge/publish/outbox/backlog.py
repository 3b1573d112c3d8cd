"""What waits to be sent and may be let go: events first and to the last, what is new, what is late behind it.

Older messages of a lane may be on the disk only: then what is here of it waits until those are.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from edge.publish.outbox.entry import Entry, replay_of

__all__ = ["Backlog"]


class Backlog:
    """Lanes, each in the order of acceptance. Not thread-safe: an outbox holds its lock.

    Attributes:
        size_bytes: memory that all lanes take.
        late: how many were moved from the live ones to the late ones so far.
        first_away: by whether it is events': the first ticket that is on the disk only; infinity where there is none.
    """

    def __init__(self, *, live_s: float, now_s: Callable[[], float]) -> None:
        self._events: deque[Entry] = deque()
        self._live: deque[Entry] = deque()
        self._replay: deque[Entry] = deque()
        self._live_s = live_s
        self._now_s = now_s
        self._held: dict[int, Entry] = {}
        self.size_bytes = 0
        self.late = 0
        self.first_away = {False: math.inf, True: math.inf}

    def __len__(self) -> int:
        return len(self._events) + len(self._live) + len(self._replay) + len(self._held)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._held.values()
        yield from self._events
        yield from self._replay
        yield from self._live

    @property
    def replays(self) -> int:
        """How many late ones wait."""
        return len(self._replay)

    def has_more(self, *, may_replay: bool) -> bool:
        """Return whether `take` would give something."""
        return self._next_lane(may_replay=may_replay) is not None

    def append(self, entry: Entry) -> None:
        """Add a new one."""
        (self._events if entry.is_event else self._live).append(entry)
        self.size_bytes += entry.cost_bytes

    def hold(self, entry: Entry) -> None:
        """Add a new one that is not sent before `release`."""
        self._held[entry.ticket] = entry
        self.size_bytes += entry.cost_bytes

    def release(self, tickets: Iterable[int]) -> bool:
        """Let these be sent, in their order, as far as they are held; return whether any was."""
        found = [entry for ticket in tickets if (entry := self._held.pop(ticket, None)) is not None]
        for entry in found:
            self._events.append(entry)
        return bool(found)

    def append_late(self, entry: Entry) -> None:
        """Add one of an earlier start, behind the others of it."""
        if not entry.may_be_replayed:
            self.append(entry)
            return
        self._replay.append(replay_of(entry))
        self.size_bytes += self._replay[-1].cost_bytes

    def take(self, *, may_replay: bool) -> Entry | None:
        """Return the next one to send; None when there is none."""
        lane = self._next_lane(may_replay=may_replay)
        return None if lane is None else self._pop(lane)

    def take_oldest(self) -> Entry:
        """Return the next one to let go, an event only where there is nothing else; there has to be one."""
        if not (self._replay or self._live or self._events):
            self.release(list(self._held)[:1])
        return self._pop(self._replay or self._live or self._events)

    def take_newest_late(self, tickets: Set[int]) -> Entry | None:
        """Return the newest late one, or the newest event, if it is one of these; None where neither is."""
        for lane in (self._replay, self._events):
            if lane and lane[-1].ticket in tickets:
                self.size_bytes -= lane[-1].cost_bytes
                return lane.pop()
        return None

    def take_ticket(self, ticket: int) -> Entry | None:
        """Return the one with this ticket if it is the oldest of its lane."""
        for lane in (self._replay, self._live, self._events):
            if lane and lane[0].ticket == ticket:
                return self._pop(lane)
        return None

    def ahead(self, most: int, *, is_event: bool) -> int:
        """Return how many, up to `most`, may be sent before the first that is on the disk only."""
        lane = self._events if is_event else self._replay
        return sum(entry.ticket < self.first_away[is_event] for entry in itertools.islice(lane, most))

    def insert(self, older: Sequence[Entry], *, is_event: bool) -> None:
        """Add those that have come back from the disk, in their order, among the others of their lane."""
        lane = self._events if is_event else self._replay
        before: list[Entry] = []
        for entry in older:
            while lane and lane[0].ticket < entry.ticket:
                before.append(lane.popleft())
            before.append(entry)
            self.size_bytes += entry.cost_bytes
        lane.extendleft(reversed(before))

    def put_back(self, entry: Entry) -> None:
        """Return one to the head of its lane."""
        lane = self._events if entry.is_event else self._live
        (self._replay if entry.is_replay else lane).appendleft(entry)
        self.size_bytes += entry.cost_bytes

    def age(self, most: int) -> None:
        """Move what has waited too long to be live; at most so many, so that nobody waits for it."""
        oldest_s = self._now_s() - self._live_s
        while most and self._live and self._live[0].accepted_at_s < oldest_s and self._live[0].may_be_replayed:
            most -= 1
            self._replay.append(self._pop_late())

    def age_returned(self) -> None:
        """Move what came back and is older than the latest of the late ones to its place among them."""
        returned: list[Entry] = []
        while self._replay and self._live and self._live[0].ticket < self._replay[-1].ticket:
            if not self._live[0].may_be_replayed:
                break
            returned.append(self._pop_late())
        newer: list[Entry] = []
        while returned and self._replay and self._replay[-1].ticket > returned[0].ticket:
            newer.append(self._replay.pop())
        self._replay.extend(sorted([*returned, *reversed(newer)], key=lambda entry: entry.ticket))

    def oldest_s(self) -> float:
        """Return how long the oldest has waited; 0 where there is none."""
        heads = [lane[0].accepted_at_s for lane in (self._events, self._replay, self._live) if lane]
        return max(0.0, self._now_s() - min(heads)) if heads else 0.0

    def clear(self) -> None:
        """Forget all."""
        self._events.clear()
        self._live.clear()
        self._replay.clear()
        self._held.clear()
        self.size_bytes = 0

    def _next_lane(self, *, may_replay: bool) -> deque[Entry] | None:
        if self._events and self._events[0].ticket < self.first_away[True]:
            return self._events
        if self._live:
            return self._live
        if may_replay and self._replay and self._replay[0].ticket < self.first_away[False]:
            return self._replay
        return None

    def _pop(self, lane: deque[Entry]) -> Entry:
        entry = lane.popleft()
        self.size_bytes -= entry.cost_bytes
        return entry

    def _pop_late(self) -> Entry:
        late = replay_of(self._pop(self._live))
        self.size_bytes += late.cost_bytes
        self.late += 1
        return late
