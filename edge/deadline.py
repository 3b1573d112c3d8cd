"""A moment after which it is of no use to wait, and how long ago one was."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime, timezone

__all__ = ["NEVER", "Deadline", "age_s"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """By a clock that is never set: `at_s` is seconds of `time.monotonic`, and good within this process only."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """0 once it is over."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.at_s


NEVER = Deadline(math.inf)


def age_s(at: str | None) -> int | None:
    """Return how long ago a second was (RFC 3339 in UTC), by this machine's clock, at least 0; None: it is none."""
    try:
        then = datetime.strptime(at or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return max(0, round((datetime.now(timezone.utc) - then).total_seconds()))
