"""How many messages may be on their way: as many as the round trip needs; and whether that is enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from edge.publish.outbox.queue import Outbox

__all__ = ["LARGEST", "SMALLEST", "Lag", "Window"]

SMALLEST = 10
LARGEST = 500  # our own bound, also where a broker has none (MQTT v3.1.1): so many may come twice after a loss
# What a window is to carry, with room to catch up: 64 streams of 15 frames a second, twice.
_MESSAGES_PER_S = 2000
# A shortest round trip is believed for so long: a queue that we fill ourselves must not make the window grow.
_MEMORY_S = 10.0
_LOOK_S = 2.5
_LATE_LOOKS = 4


class Window:
    """Grows with the shortest round trip of the last ten to twenty seconds; a near broker gets ten.

    Lives as long as its publisher: each connection begins with the round trip of the one before. `most` is what the
    broker takes, `largest` what was used so far.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._shortest_s = self._shortest_before_s = math.inf
        self._turned_at_s = now_s()
        self.size = self.most = self.largest = 0

    def begin(self, receive_maximum: int) -> None:
        self.most = min(receive_maximum, LARGEST)
        self._look()

    @property
    def round_trip_s(self) -> float | None:
        """The shortest lately; None before the first acknowledgement."""
        shortest_s = min(self._shortest_s, self._shortest_before_s)
        return shortest_s if math.isfinite(shortest_s) else None

    def measured(self, round_trip_s: float) -> None:
        now_s = self._now_s()
        if now_s - self._turned_at_s > _MEMORY_S:
            self._shortest_before_s, self._shortest_s, self._turned_at_s = self._shortest_s, math.inf, now_s
        if round_trip_s < self._shortest_s:
            self._shortest_s = round_trip_s
            self._look()

    def _look(self) -> None:
        wanted = math.ceil((self.round_trip_s or 0.0) * _MESSAGES_PER_S)
        self.size = min(self.most, max(SMALLEST, wanted))
        self.largest = max(self.largest, self.size)


class Lag:
    """Whether messages leave more slowly than they come, in words for the log and for the device's state.

    Lives as long as one connection: what became late while there was none is no lag. There is one where each of four
    looks finds more messages that have become late: what a restart of the broker made late is so once. It is over when
    a look finds none, and none waits.
    """

    def __init__(self, outbox: Outbox, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._outbox = outbox
        self._now_s = now_s
        self._next_look_s = now_s()
        self._late = outbox.late
        self._late_looks = 0
        self.reason: str | None = None

    def look(self, window: Window) -> bool:
        """Return whether there is a lag now and was none before, or the reverse."""
        if self._now_s() < self._next_look_s:
            return False
        self._next_look_s = self._now_s() + _LOOK_S
        before, self._late = self._late, self._outbox.late
        self._late_looks = self._late_looks + 1 if self._late > before else 0
        if self.reason is None and self._late_looks >= _LATE_LOOKS:
            self.reason = self._words(window)
            return True
        if self.reason is not None and not self._late_looks and not self._outbox.has_replay:
            self.reason = None
            return True
        return False

    def _words(self, window: Window) -> str:
        round_trip_ms = 1000 * (window.round_trip_s or 0.0)
        return (
            "publishing cannot keep up: messages wait; "
            f"the broker takes {window.size} at a time with a round trip of {round_trip_ms:.0f} ms"
        )
