"""Whether a release may follow what a device has taken: its channel, its counter, and a time that can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from edge.bundle.checks import read_time
from edge.bundle.manifest import Manifest
from edge.errors import DeployError

__all__ = [
    "MAX_PERMISSION_DAYS",
    "MOST_AHEAD_S",
    "ahead",
    "ahead_of",
    "most_sequence",
    "not_its_turn",
    "permission_gaps",
]

MOST_AHEAD_S = 86_400
"""How far the clocks of two machines may be apart, in seconds."""
MAX_PERMISSION_DAYS = 30
_MOST_AHEAD_UNSURE_S = 366 * 86_400  # by a clock that nobody has set: a module may have lain on a shelf


def most_sequence(created_at: datetime) -> int:
    """Return the highest sequence of a release: the second in which it was made, and a day."""
    return int(created_at.timestamp()) + MOST_AHEAD_S


def ahead(manifest: Manifest, *, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
    """Yield why a release comes from too far ahead: once taken, all that is honest would be older.

    Args:
        manifest: whose signature was verified.
        at: the time, see `edge.bundle.clock`.
        is_clock_sure: somebody sets the clock, so that `at` is now.
    """
    yield from ahead_of(manifest.created_at, at=at, is_clock_sure=is_clock_sure)
    created_at = read_time("created_at", manifest.created_at)
    if manifest.sequence > most_sequence(created_at):
        yield DeployError(
            "verify.ahead.sequence",
            f"sequence {manifest.sequence} is above {most_sequence(created_at)}, which is the second in which the "
            "release was made, and a day",
            hint="bundle it again without --sequence",
            evidence={"sequence": manifest.sequence, "most": most_sequence(created_at)},
        )


def ahead_of(created_at: str, *, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
    """Yield why something was made later than it can be at the time `at`, see `ahead`."""
    latest = at + timedelta(seconds=MOST_AHEAD_S if is_clock_sure else _MOST_AHEAD_UNSURE_S)
    if read_time("created_at", created_at) > latest:
        yield DeployError(
            "verify.ahead.time",
            f"it says that it was made at {created_at}, the device's time is {_text(at)}",
            hint="set the clock of the machine that signs, or that of the device, and sign it again",
            evidence={"created_at": created_at, "latest": _text(latest)},
        )


def not_its_turn(
    manifest: Manifest,
    name: str,
    *,
    channels: Sequence[str],
    sequences: Mapping[str, int],
    is_permission: bool,
    reset_at: str | None = None,
) -> Iterator[DeployError]:
    """Yield why a release may not follow what the device `name` has taken.

    Args:
        manifest: whose signature was verified.
        name: of the device.
        channels: what the device is bound to; none: it has taken nothing yet.
        sequences: highest sequence taken so far, by channel.
        is_permission: it was signed in the namespace that allows a lower one.
        reset_at: when the reset was made that the device has followed last; None: never.
    """
    if channels and manifest.channel not in channels:
        yield DeployError(
            "verify.channel",
            f"the release is of channel {manifest.channel}, {name} takes {', '.join(channels)}",
            hint=f"bundle it for that channel, or bind the device: edge-deploy provision --channel {manifest.channel}",
            evidence={"channel": manifest.channel, "channels": list(channels)},
        )
        return
    seen = sequences.get(manifest.channel, 0)
    if is_permission:
        yield from permission_gaps(manifest)
        # After a reset a counter may come round again; no permission from before it does.
        is_older = reset_at is not None and manifest.created_at <= reset_at
        if manifest.downgrade_from is not None and (manifest.downgrade_from != seen or is_older):
            yield _void(manifest, name, seen)
    elif manifest.sequence < seen:
        yield DeployError(
            "verify.downgrade",
            f"{name} has accepted sequence {seen} of channel {manifest.channel}, this is {manifest.sequence}",
            hint=f"bundle it again for a new sequence, or go back on purpose: edge-deploy bundle --downgrade {seen}",
            evidence={"channel": manifest.channel, "seen": seen, "sequence": manifest.sequence},
        )


def permission_gaps(manifest: Manifest) -> Iterator[DeployError]:
    """Yield what a permission to go back does not say: for which devices, until when, from which counter on."""
    lacks = []
    if not manifest.targets:
        lacks.append("targets")
    if manifest.expires_at is None or _days(manifest) > MAX_PERMISSION_DAYS:
        lacks.append(f"an expiry within {MAX_PERMISSION_DAYS} days")
    if manifest.downgrade_from is None:
        lacks.append("the counter that it is given for")
    if lacks:
        yield DeployError(
            "verify.downgrade.bounds",
            f"the permission to go back does not name {' and '.join(lacks)}",
            hint="bundle it again: edge-deploy bundle --downgrade COUNTER --target NAME --expires-days N",
        )


def _void(manifest: Manifest, name: str, seen: int) -> DeployError:
    return DeployError(
        "verify.downgrade.counter",
        f"the permission to go back was given for counter {manifest.downgrade_from} of channel {manifest.channel}, "
        f"{name} is at {seen}: it was used, or the device has taken something newer or was reset since",
        hint=f"if it is still wanted, sign another one: edge-deploy bundle --downgrade {seen} --target {name}",
        evidence={"channel": manifest.channel, "seen": seen, "given_for": manifest.downgrade_from},
    )


def _days(manifest: Manifest) -> float:
    until = read_time("expires_at", manifest.expires_at) - read_time("created_at", manifest.created_at)
    return until.total_seconds() / 86_400


def _text(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
