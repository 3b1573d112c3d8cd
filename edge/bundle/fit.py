"""Whether a release is meant for a device, at this time, after what the device has accepted before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Protocol

from edge.bundle.checks import read_time, version_parts
from edge.bundle.manifest import GoldenFrames, Manifest
from edge.bundle.succession import ahead, not_its_turn
from edge.errors import DeployError

__all__ = ["ANY", "DeviceLike", "refusals"]

ANY = "any"
"""As a manifest's `compatible`: every device."""


class DeviceLike(Protocol):
    """What has to be known of a device; `edge.device.facts.Facts` is one."""

    @property
    def name(self) -> str:
        """Its name in inventories."""
        ...

    @property
    def compatible(self) -> tuple[str, ...]:
        """Classes that it belongs to."""
        ...

    @property
    def tensorrt(self) -> str | None:
        """Digits and dots; None: not installed."""
        ...

    @property
    def l4t(self) -> str | None:
        """Digits and dots; None: no Jetson."""
        ...


def refusals(
    manifest: Manifest,
    device: DeviceLike,
    *,
    sequences: Mapping[str, int],
    at: datetime,
    channels: Sequence[str] = (),
    is_clock_sure: bool = False,
    is_downgrade_signed: bool = False,
    reset_at: str | None = None,
    allow_unproven: bool = False,
) -> Iterator[DeployError]:
    """Yield every reason for which the device may not take the release, the gravest first; nothing if it may.

    Args:
        manifest: whose signature was verified.
        device: facts.
        sequences: highest sequence accepted so far, by channel.
        at: the time, see `edge.bundle.clock`.
        channels: what the device is bound to; none: it has taken nothing yet.
        is_clock_sure: somebody sets the device's clock, so that `at` is now.
        is_downgrade_signed: the signature was made in the namespace that allows a lower sequence.
        reset_at: when the reset was made that the device has followed last; None: never.
        allow_unproven: the device takes releases without golden frames.

    Yields:
        `verify.*`, then `preflight.*`.
    """
    yield from _not_meant(manifest, device)
    yield from _out_of_date(manifest, at)
    yield from ahead(manifest, at=at, is_clock_sure=is_clock_sure)
    yield from not_its_turn(
        manifest,
        device.name,
        channels=channels,
        sequences=sequences,
        is_permission=is_downgrade_signed,
        reset_at=reset_at,
    )
    if manifest.golden_frames is GoldenFrames.NONE and not allow_unproven:
        yield DeployError(
            "verify.unproven",
            f"release {manifest.release} has no golden frames, and {device.name} takes proven releases only",
            hint="bundle it with --golden DIR, or set allow_unproven = true in the device's device.toml",
        )
    yield from _version("preflight.tensorrt", "TensorRT", manifest.tensorrt, device.tensorrt, device.name)
    yield from _version("preflight.l4t", "L4T", manifest.l4t, device.l4t, device.name)


def _not_meant(manifest: Manifest, device: DeviceLike) -> Iterator[DeployError]:
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
        now = f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
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
