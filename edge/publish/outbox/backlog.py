"""What waits to be sent and may be let go: events first and to the last, what is new, what is late behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from edge.publish.outbox.entry import Entry, replay_of

__all__ = ["Backlog"]


class Backlog:
    """Lanes, each in the order of acceptance. Not thread-safe: an outbox holds its lock.

    Attributes:
        size_bytes: memory that all lanes take.
        late: how many were moved from the live ones to the late ones so far.
    """

    def __init__(self, *, live_s: float, now_s: Callable[[], float]) -> None:
        self._events: deque[Entry] = deque()
        self._live: deque[Entry] = deque()
        self._replay: deque[Entry] = deque()
        self._live_s = live_s
        self._now_s = now_s
        self.size_bytes = 0
        self.late = 0

    def __len__(self) -> int:
        return len(self._events) + len(self._live) + len(self._replay)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._events
        yield from self._replay
        yield from self._live

    @property
    def replays(self) -> int:
        """How many late ones wait."""
        return len(self._replay)

    def has_more(self, *, may_replay: bool) -> bool:
        """Return whether `take` would give something."""
        return bool(self._events or self._live or (may_replay and self._replay))

    def append(self, entry: Entry) -> None:
        """Add a new one."""
        (self._events if _is_event(entry) else self._live).append(entry)
        self.size_bytes += entry.cost_bytes

    def append_late(self, entry: Entry) -> None:
        """Add one of an earlier start, behind the others of it."""
        if not entry.may_be_replayed:
            self.append(entry)
            return
        self._replay.append(replay_of(entry))
        self.size_bytes += self._replay[-1].cost_bytes

    def take(self, *, may_replay: bool) -> Entry | None:
        """Return the next one to send; None when there is none."""
        if self._events or self._live:
            return self._pop(self._events or self._live)
        return self._pop(self._replay) if may_replay and self._replay else None

    def take_oldest(self) -> Entry:
        """Return the next one to let go, an event only where there is nothing else; there has to be one."""
        return self._pop(self._replay or self._live or self._events)

    def put_back(self, entry: Entry) -> None:
        """Return one to the head of its lane."""
        lane = self._events if _is_event(entry) else self._live
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
        while self._replay and self._live and self._live[0].accepted_at_s < self._replay[-1].accepted_at_s:
            if not self._live[0].may_be_replayed:
                break
            returned.append(self._pop_late())
        newer: list[Entry] = []
        while returned and self._replay and self._replay[-1].accepted_at_s > returned[0].accepted_at_s:
            newer.append(self._replay.pop())
        self._replay.extend(sorted([*returned, *reversed(newer)], key=lambda entry: entry.accepted_at_s))

    def oldest_s(self) -> float:
        """Return how long the oldest has waited; 0 where there is none."""
        heads = [lane[0].accepted_at_s for lane in (self._events, self._replay, self._live) if lane]
        return max(0.0, self._now_s() - min(heads)) if heads else 0.0

    def clear(self) -> None:
        """Forget all."""
        self._events.clear()
        self._live.clear()
        self._replay.clear()
        self.size_bytes = 0

    def _pop(self, lane: deque[Entry]) -> Entry:
        entry = lane.popleft()
        self.size_bytes -= entry.cost_bytes
        return entry

    def _pop_late(self) -> Entry:
        late = replay_of(self._pop(self._live))
        self.size_bytes += late.cost_bytes
        self.late += 1
        return late


def _is_event(entry: Entry) -> bool:
    return entry.number is not None and entry.number.of == "events"
