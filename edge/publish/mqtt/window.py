"""How many messages may be on their way: as many as the round trip needs, within what the broker allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["LARGEST", "SMALLEST", "Window"]

SMALLEST = 10
LARGEST = 500  # our own bound, also where a broker has none (MQTT v3.1.1): so many may come twice after a loss
_MAX_BYTES = 1 << 20
# What a window is to carry, with room to catch up: 64 streams of 15 frames a second, twice.
_MESSAGES_PER_S = 2000
# A shortest round trip is believed for so long: a queue that we fill ourselves must not make the window grow.
_MEMORY_S = 10.0


class Window:
    """Grows with the shortest round trip of the last ten to twenty seconds; a near broker gets ten."""

    def __init__(self, receive_maximum: int, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most = min(receive_maximum, LARGEST)
        self._now_s = now_s
        self._shortest_s = self._shortest_before_s = math.inf
        self._turned_at_s = now_s()
        self.size = min(SMALLEST, self._most)
        self.largest = self.size

    @property
    def round_trip_s(self) -> float | None:
        """The shortest lately; None before the first acknowledgement."""
        shortest_s = min(self._shortest_s, self._shortest_before_s)
        return shortest_s if math.isfinite(shortest_s) else None

    def measured(self, round_trip_s: float) -> None:
        """Take note of an acknowledgement."""
        now_s = self._now_s()
        if now_s - self._turned_at_s > _MEMORY_S:
            self._shortest_before_s, self._shortest_s, self._turned_at_s = self._shortest_s, math.inf, now_s
        self._shortest_s = min(self._shortest_s, round_trip_s)
        wanted = math.ceil(min(self._shortest_s, self._shortest_before_s) * _MESSAGES_PER_S)
        self.size = min(self._most, max(SMALLEST, wanted))
        self.largest = max(self.largest, self.size)

    def has_room(self, count: int, size_bytes: int) -> bool:
        """Return whether one more may go while `count` messages of `size_bytes` together are on their way."""
        return count < self.size and size_bytes < _MAX_BYTES
