"""Topics that a broker refuses for now: their messages wait, in their order, while those of other topics go on."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from edge.publish.outbox.message import Entry

__all__ = ["Holds"]

_HOLD_MIN_S, _HOLD_MAX_S = 0.5, 30.0
# So often a topic is tried before a message is given up: 16 s at least, and no message stops its topic for good.
_MOST_TRIES = 6
_MOST_WAITING = 256


@dataclass(slots=True)
class _Hold:
    hold_s: float
    until_s: float = 0.0
    tries: int = 0
    given_up: int = 0
    is_probed: bool = False
    waiting: deque[Entry] = field(default_factory=deque)

    def wait(self, entry: Entry) -> None:
        """Add a message that has come back, at its place."""
        self.waiting = deque(sorted([entry, *self.waiting], key=lambda one: one.ticket))


class Holds:
    """Lives as long as a connection; used by one thread. What waits here is in flight for the outbox.

    A hold ends when the broker answers for good the message that is sent to probe the topic. After `_MOST_TRIES`
    refusals the message is given up; where the next one is refused, too, so are all that wait, and those of the next
    half minute.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._holds: dict[str, _Hold] = {}
        self._released: deque[Entry] = deque()
        self._is_other_taken = False

    def __len__(self) -> int:
        return len(self._released) + sum(len(hold.waiting) for hold in self._holds.values())

    @property
    def is_full(self) -> bool:
        """Whether no more may wait: nothing of any topic was accepted since the first of these holds."""
        return not self._is_other_taken and len(self) >= _MOST_WAITING

    def refused(self, entry: Entry) -> list[Entry]:
        """Hold the topic of a message that was refused for now; return those to give up, in their order."""
        if not self._holds:
            self._is_other_taken = False
        hold = self._holds.setdefault(entry.topic, _Hold(_HOLD_MIN_S))
        if hold.tries and not hold.is_probed:  # it was on its way before the hold began
            hold.wait(entry)
            return []
        hold.tries += 1
        hold.is_probed = False
        if hold.given_up == 0 and hold.tries < _MOST_TRIES:
            hold.until_s, hold.hold_s = self._now_s() + hold.hold_s, min(_HOLD_MAX_S, 2 * hold.hold_s)
            hold.wait(entry)
            return []
        hold.given_up += 1
        if hold.given_up == 1:
            return [entry]
        lost, hold.waiting = [entry, *hold.waiting], deque()
        hold.until_s = self._now_s() + _HOLD_MAX_S
        return lost

    def answered(self, entry: Entry, *, is_taken: bool) -> None:
        """End the hold of a topic of which a message was accepted, or refused for good: all that waits may go."""
        self._is_other_taken = self._is_other_taken or is_taken
        hold = self._holds.get(entry.topic)
        if hold is not None and hold.is_probed:  # others were on their way before the hold began
            self._released.extend(self.end(entry.topic))

    def pause(self, topic: str) -> None:
        """Hold a topic of which a message is passed over, until that is settled."""
        hold = self._holds.setdefault(topic, _Hold(_HOLD_MIN_S))
        hold.is_probed = True

    def end(self, topic: str) -> deque[Entry]:
        """Return the messages that waited, which are no longer here."""
        hold = self._holds.pop(topic, None)
        return deque() if hold is None else hold.waiting

    def takes(self, entry: Entry) -> list[Entry] | None:
        """Let a message wait where its topic is held, and return those to give up for it; None: it may be sent."""
        hold = self._holds.get(entry.topic)
        if hold is None:
            return None
        hold.waiting.append(entry)
        is_hopeless = hold.given_up > 1 and self._now_s() < hold.until_s
        most = 0 if is_hopeless else _MOST_WAITING
        over = len(hold.waiting) - most if self._is_other_taken else 0
        return [hold.waiting.popleft() for _ in range(over)]

    def due(self) -> Entry | None:
        """Return the next message that may go: one that was released, or the first of a hold that is over."""
        if self._released:
            return self._released.popleft()
        now_s = self._now_s()
        for hold in self._holds.values():
            if hold.waiting and not hold.is_probed and now_s >= hold.until_s:
                hold.is_probed = True
                return hold.waiting.popleft()
        return None

    @property
    def due_in_s(self) -> float:
        """How long until `due` gives one; infinity where nothing waits for time alone."""
        if self._released:
            return 0.0
        untils = [hold.until_s for hold in self._holds.values() if hold.waiting and not hold.is_probed]
        return max(0.0, min(untils, default=math.inf) - self._now_s())
