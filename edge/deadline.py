"""A moment after which it is of no use to wait."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

__all__ = ["NEVER", "Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """By a clock that nobody sets: `at_s` is seconds of `time.monotonic`, and good within this process only."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 once it is over."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return time.monotonic() >= self.at_s


NEVER = Deadline(math.inf)
