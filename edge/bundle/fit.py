"""Whether a release is meant for a device, at this time, after what the device has accepted before.

A module without a battery boots in 1970: the time by which a device judges is not older than what it has taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from edge.bundle.checks import read_time, version_parts
from edge.bundle.manifest import GoldenFrames, Manifest
from edge.errors import DeployError
from edge.reports import Facts
from edge.version import RELEASED_AT

__all__ = [
    "ANY",
    "MAX_PERMISSION_DAYS",
    "MOST_AHEAD_S",
    "ahead",
    "ahead_of",
    "most_sequence",
    "not_its_turn",
    "permission_gaps",
    "refusals",
    "time_floor",
]

MOST_AHEAD_S = 86_400
"""How far the clocks of two machines may be apart, in seconds."""
MAX_PERMISSION_DAYS = 30
_MOST_AHEAD_UNSURE_S = 366 * 86_400  # by a clock that was never set: a module may have lain on a shelf
ANY = "any"
"""As a manifest's `compatible`: every device."""


def most_sequence(created_at: datetime) -> int:
    """Return the highest sequence of a release: the second in which it was made, and a day."""
    return int(created_at.timestamp()) + MOST_AHEAD_S


def ahead(manifest: Manifest, *, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
    """Yield why a release comes from too far ahead: once taken, all that is honest would be older.

    `is_clock_sure`: the clock is kept right, so that `at` is now.
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
    newest: Mapping[str, str],
    is_permission: bool,
) -> Iterator[DeployError]:
    """Yield why a release may not follow what the device `name` has taken; arguments as of `refusals`."""
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
        if manifest.downgrade_from is not None and manifest.downgrade_from != seen:
            yield _void(manifest, name, seen)
    elif manifest.sequence < seen:
        yield DeployError(
            "verify.downgrade",
            f"{name} has accepted sequence {seen} of channel {manifest.channel}, this is {manifest.sequence}",
            hint="give it a new sequence: edge-deploy bundle --again OLD.bundle; "
            f"or go back on purpose, once, on one device: edge-deploy bundle --downgrade {seen}",
            evidence={"channel": manifest.channel, "seen": seen, "sequence": manifest.sequence},
        )
    elif manifest.sequence == seen and newest.get(manifest.channel, manifest.release) != manifest.release:
        yield DeployError(
            "verify.downgrade.equal",
            f"{name} has accepted release {newest[manifest.channel]} with sequence {seen} of channel "
            f"{manifest.channel}, {manifest.release} has the same",
            hint="give it a sequence of its own: edge-deploy bundle --again OLD.bundle",
            evidence={"channel": manifest.channel, "seen": seen, "release": newest[manifest.channel]},
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
        f"{name} is at {seen}: it was used, or the device has taken something newer since",
        hint=f"if it is still wanted, sign another one: edge-deploy bundle --downgrade {seen} --target {name}",
        evidence={"channel": manifest.channel, "seen": seen, "given_for": manifest.downgrade_from},
    )


def _days(manifest: Manifest) -> float:
    until = read_time("expires_at", manifest.expires_at) - read_time("created_at", manifest.created_at)
    return until.total_seconds() / 86_400


def _text(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def time_floor(clock: datetime, *, newest_created_at: str | None) -> datetime:
    """Return the earliest time that it can be: the latest of `clock`, of the newest manifest ever accepted, and of the
    release of this version.

    A clock that is ahead refuses what it takes for expired, and leaves nothing behind: once it is set right, the same
    bundle is taken. DeployError `verify.manifest.field`, if one of the texts is no time.
    """
    known = [clock, read_time("released_at", RELEASED_AT)]
    if newest_created_at is not None:
        known.append(read_time("newest created_at", newest_created_at))
    return max(known)


def refusals(
    manifest: Manifest,
    device: Facts,
    *,
    sequences: Mapping[str, int],
    newest: Mapping[str, str],
    at: datetime,
    channels: Sequence[str] = (),
    is_clock_sure: bool = False,
    is_downgrade_signed: bool = False,
    allow_unproven: bool = False,
) -> Iterator[DeployError]:
    """Yield every reason for which the device may not take the release, `verify.*` before `preflight.*`.

    `sequences`: highest accepted so far by channel, `newest`: the release that had it, where known.
    `channels`: what the device is bound to; none: it has taken nothing yet.
    `is_clock_sure`: the device's clock is kept right, so that `at` is now.
    `is_downgrade_signed`: the signature was made in the namespace that allows a lower sequence.
    `allow_unproven`: the device takes releases without golden frames.
    """
    yield from _not_meant(manifest, device)
    yield from _out_of_date(manifest, at)
    yield from ahead(manifest, at=at, is_clock_sure=is_clock_sure)
    yield from not_its_turn(
        manifest, device.name, channels=channels, sequences=sequences, newest=newest, is_permission=is_downgrade_signed
    )
    if manifest.golden_frames is GoldenFrames.NONE and not allow_unproven:
        yield DeployError(
            "verify.unproven",
            f"release {manifest.release} has no golden frames, and {device.name} takes proven releases only",
            hint="bundle it with --golden DIR, or set allow_unproven = true in the device's device.toml",
        )
    yield from _version("preflight.tensorrt", "TensorRT", manifest.tensorrt, device.tensorrt, device.name)
    yield from _version("preflight.l4t", "L4T", manifest.l4t, device.l4t, device.name)


def _not_meant(manifest: Manifest, device: Facts) -> Iterator[DeployError]:
    if ANY not in manifest.compatible and not set(manifest.compatible) & set(device.compatible):
        yield DeployError(
            "verify.device",
            f"the release is compatible with {', '.join(manifest.compatible)}, {device.name} is "
            f"{', '.join(device.compatible) or 'of no class'}",
            hint="push to a matching target, or bundle it again with --compatible",
            evidence={"compatible": list(manifest.compatible), "device": list(device.compatible)},
        )
    if manifest.targets and device.name not in manifest.targets:
        yield DeployError(
            "verify.device",
            f"the release is for {', '.join(manifest.targets[:10])}, this is {device.name}",
            hint="push to one of these targets, or bundle it again with --target",
            evidence={"targets": list(manifest.targets[:100]), "device": device.name},
        )


def _out_of_date(manifest: Manifest, at: datetime) -> Iterator[DeployError]:
    if manifest.expires_at is not None and at >= read_time("expires_at", manifest.expires_at):
        now = _text(at)
        yield DeployError(
            "verify.expired",
            f"the release expired at {manifest.expires_at}, the device's time is {now} or later",
            hint="bundle it again; if the device's clock is ahead, set it",
            evidence={"expires_at": manifest.expires_at, "device_time": now},
        )


def _version(
    code: str, name: str, bounds: tuple[str | None, str | None], found: str | None, device: str
) -> Iterator[DeployError]:
    low, high = bounds
    if low is None and high is None:
        return
    is_within = (
        found is not None
        and (low is None or version_parts(found) >= version_parts(low))
        and (high is None or version_parts(found) < version_parts(high))
    )
    if not is_within:
        asked = " and ".join(
            part for part in (low and f"{name} {low} or newer", high and f"{name} older than {high}") if part
        )
        yield DeployError(
            code,
            f"the release needs {asked}, {device} has {found or 'none'}",
            hint="update the device, or bundle the release for it",
            evidence={"from": low, "below": high, "device": found},
        )
