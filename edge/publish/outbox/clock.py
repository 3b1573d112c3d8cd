"""The time of messages on the disk."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["SpoolClock"]


class SpoolClock:
    """The time of messages on the disk: it goes on over starts, and never backwards.

    Steps of the system's clock while this runs are not seen. What was stamped by a clock that nobody had set counts
    from now on.
    """

    _SET_S = 1_600_000_000.0  # 2020: before this software

    def __init__(
        self,
        newest_s: float,
        *,
        time_s: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic_now_s = monotonic_s
        self._offset_s = max(time_s(), newest_s) - monotonic_s()
        self._begun_s = self.now_s()

    def now_s(self) -> float:
        """Return the time."""
        return self._monotonic_now_s() + self._offset_s

    def at_s(self, monotonic_s: float) -> float:
        """Return the time of a moment of the monotonic clock."""
        return monotonic_s + self._offset_s

    def monotonic_s(self, at_s: float) -> float:
        """Return the moment of the monotonic clock; one before it began is negative."""
        return self._monotonic_now_s() - self.age_s(at_s)

    def age_s(self, at_s: float) -> float:
        """Return how long ago a time was."""
        was_set = at_s >= self._SET_S or self._begun_s < self._SET_S
        return max(0.0, self.now_s() - (at_s if was_set else self._begun_s))
