"""When a retained message may go that is the last word on its stream: behind the numbered ones that came before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from edge.publish.outbox.backlog import Backlog
from edge.publish.outbox.entry import Entry
from edge.publish.outbox.flight import Flight
from edge.publish.outbox.losses import Losses

__all__ = ["Lanes", "LastWord"]

# A message is not held for ever by others that do not get through: those of a disk that does not answer, or late ones
# of a broker that is too slow for them.
_PATIENCE_S = 30.0
_COUNT_AGAIN_S = 5.0  # a count may be too high: what lies on the disk only is let go there


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where an outbox has what is not settled."""

    backlog: Backlog
    flight: Flight
    losses: Losses
    now_s: Callable[[], float]

    @property
    def first_away(self) -> float:
        """The first ticket that is on the disk only, of whatever stream; infinity where there is none."""
        return min(self.backlog.first_away.values())

    def count(self, stream: str) -> int:
        """Return how many messages of the stream, and how many gap records, are in memory; takes a look at each."""
        here = (*self.flight.unsettled(), *self.backlog)
        of_stream = [entry for entry in here if entry.number is not None and entry.number.stream == stream]
        return len(of_stream) + len(self.losses) + sum(entry.is_gap for entry in self.flight.unsettled())


class LastWord:
    """Waits for what was accepted before it: `before_ticket` is the ticket of the next one."""

    def __init__(self, stream: str, lanes: Lanes, *, before_ticket: int) -> None:
        self._stream = stream
        self._lanes = lanes
        self._before_ticket = before_ticket
        self._left = 0
        self._count_at_s = -math.inf
        self._in_vain_since_s: float | None = None
        self._first_away = math.inf

    def settled(self, entry: Entry) -> None:
        """Take note that a message was delivered, or is declared lost."""
        if entry.is_gap or (entry.number is not None and entry.number.stream == self._stream):
            self._left -= 1
            self.wait_anew()

    def wait_anew(self) -> None:
        """Have patience again: something got through, or nothing can, because there is no connection."""
        self._in_vain_since_s = None

    def is_due(self) -> bool:
        """Return whether nothing has to go before it any more; asked while there is a connection."""
        now_s, first_away = self._lanes.now_s(), self._lanes.first_away
        if first_away != self._first_away or self._in_vain_since_s is None:
            self._first_away, self._in_vain_since_s = first_away, now_s
        if now_s - self._in_vain_since_s >= _PATIENCE_S:
            return True
        if first_away < self._before_ticket:
            return False
        if self._left <= 0 or now_s >= self._count_at_s:
            self._left, self._count_at_s = self._lanes.count(self._stream), now_s + _COUNT_AGAIN_S
        return not self._left
