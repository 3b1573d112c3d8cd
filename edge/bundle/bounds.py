"""Bounds of a release, for its signer and for devices: how far ahead it is from, what a permission to go back names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from edge.bundle.checks import read_time
from edge.bundle.manifest import Manifest
from edge.errors import DeployError

__all__ = ["MOST_AHEAD_S", "ahead", "ahead_of", "most_sequence", "permission_gaps", "time_text"]

MOST_AHEAD_S = 86_400
"""How far the clocks of two machines may be apart, in seconds."""
_MAX_PERMISSION_DAYS = 30
_MOST_AHEAD_UNSURE_S = 366 * 86_400  # by a clock that was never set: a module may have lain on a shelf


def most_sequence(created_at: datetime) -> int:
    """Return the highest sequence of a release: the second in which it was made, and a day."""
    return int(created_at.timestamp()) + MOST_AHEAD_S


def ahead(manifest: Manifest, *, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
    """Yield why a release comes from too far ahead: once taken, all that is honest would be older.

    `is_clock_sure`: the clock is kept right, so that `at` is now.
    """
    yield from ahead_of(manifest.created_at, at=at, is_clock_sure=is_clock_sure)
    most = most_sequence(read_time("created_at", manifest.created_at))
    if manifest.sequence > most:
        yield DeployError(
            "verify.ahead.sequence",
            f"sequence {manifest.sequence} is above {most}, which is the second in which the release was made, and a "
            "day",
            hint="bundle it again without --sequence",
            evidence={"sequence": manifest.sequence, "most": most},
        )


def ahead_of(created_at: str, *, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
    """Yield why something was made later than it can be at the time `at`, see `ahead`."""
    latest = at + timedelta(seconds=MOST_AHEAD_S if is_clock_sure else _MOST_AHEAD_UNSURE_S)
    if read_time("created_at", created_at) > latest:
        yield DeployError(
            "verify.ahead.time",
            f"it says that it was made at {created_at}, the device's time is {time_text(at)}",
            hint="set the clock of the machine that signs, or that of the device, and sign it again",
            evidence={"created_at": created_at, "latest": time_text(latest)},
        )


def permission_gaps(manifest: Manifest) -> Iterator[DeployError]:
    """Yield what a permission to go back does not say: for which devices, until when, from which counter on."""
    lacks = []
    if not manifest.targets:
        lacks.append("targets")
    if manifest.expires_at is None or _days(manifest) > _MAX_PERMISSION_DAYS:
        lacks.append(f"an expiry within {_MAX_PERMISSION_DAYS} days")
    if manifest.downgrade_from is None:
        lacks.append("the counter that it is given for")
    if lacks:
        yield DeployError(
            "verify.downgrade.bounds",
            f"the permission to go back does not name {' and '.join(lacks)}",
            hint="bundle it again: edge-deploy bundle --downgrade COUNTER --target NAME --expires-days N",
        )


def _days(manifest: Manifest) -> float:
    until = read_time("expires_at", manifest.expires_at) - read_time("created_at", manifest.created_at)
    return until.total_seconds() / 86_400


def time_text(at: datetime) -> str:
    """Return a time as manifests have it."""
    return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
