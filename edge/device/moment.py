"""One instant as a device knows it: a clock that may be wrong, and one that nobody sets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.reading import read_file

__all__ = ["Moment", "is_clock_sure", "this_moment"]

_TIME_ERROR = 5  # of linux/timex.h: nothing has set this clock lately


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`at` is RFC 3339 in UTC, for people; deadlines are counted with `boottime_ns`, which is good within `boot_id`."""

    at: str
    boottime_ns: int
    boot_id: str


def this_moment(boot_id_path: Path = Path("/proc/sys/kernel/random/boot_id")) -> Moment:
    """Return now."""
    return Moment(
        at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        boot_id=read_file(boot_id_path).decode("ascii").strip(),
    )


def is_clock_sure() -> bool:
    """Return whether the kernel knows that something, such as NTP, keeps the clock right."""
    import ctypes

    # A struct timex has 208 bytes at most; all zero asks and sets nothing.
    asked = ctypes.create_string_buffer(512)
    state: int = ctypes.CDLL(None).adjtimex(asked)
    return 0 <= state < _TIME_ERROR
