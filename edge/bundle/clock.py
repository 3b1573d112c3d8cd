"""The time by which a device judges what expires. A module without a battery boots in 1970."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from edge.bundle.checks import read_time
from edge.version import RELEASED_AT

__all__ = ["TimeFloor", "time_floor"]


@dataclass(frozen=True, slots=True)
class TimeFloor:
    """`at` is the earliest time that it can be; `is_clock_behind`: the clock shows an earlier one, which is wrong."""

    at: datetime
    is_clock_behind: bool


def time_floor(clock: datetime, *, newest_created_at: str | None, released_at: str = RELEASED_AT) -> TimeFloor:
    """Return the latest of the clock, the newest manifest ever accepted, and the release of this version.

    A clock that is ahead refuses what it takes for expired, and leaves nothing behind: once it is set right, the same
    bundle is taken.

    Args:
        clock: of the device, with its time zone.
        newest_created_at: of all manifests that the device has accepted.
        released_at: of the software that runs.

    Raises:
        DeployError: `verify.manifest.field`, if one of the texts is no time.
    """
    known = [read_time("released_at", released_at)]
    if newest_created_at is not None:
        known.append(read_time("newest created_at", newest_created_at))
    return TimeFloor(max(clock, *known), clock < max(known))
