"""What a device has been through with releases: how far it has come, and which of them failed here."""

from __future__ import annotations

from edge.bundle.manifest import Manifest
from edge.bundle.sign import DOWNGRADE, namespace_of
from edge.device.bad import read_bad
from edge.device.counters import Counters, read_counters
from edge.device.device import Device
from edge.device.facts import Facts
from edge.device.state import Phase
from edge.errors import DeployError

__all__ = ["check_fits", "check_not_bad", "check_not_older", "check_trusted_state", "counters_of"]


def counters_of(manifest: Manifest) -> Counters:
    """Return what a device has seen once it has taken the release."""
    return Counters(sequences={manifest.channel: manifest.sequence}, newest_created_at=manifest.created_at)


def check_fits(manifest: Manifest, facts: Facts) -> None:
    """Raise DeployError `preflight.device` if the release is not for this device."""
    is_for_class = "any" in manifest.compatible or set(manifest.compatible) & set(facts.compatible)
    if not is_for_class or (manifest.targets and facts.name not in manifest.targets):
        raise DeployError(
            "preflight.device",
            f"the release is for {', '.join(manifest.targets or manifest.compatible)}, "
            f"this is {facts.name} ({', '.join(facts.compatible)})",
            hint="push to a device that fits, or bundle for this one",
        )


def check_not_older(device: Device, manifest: Manifest, signature: bytes) -> None:
    """Raise DeployError `verify.downgrade` for a lower sequence than ever taken, unless it was signed for just that."""
    highest = read_counters(device.layout, device.durable.files).sequences.get(manifest.channel, 0)
    if manifest.sequence < highest and namespace_of(signature) != DOWNGRADE:
        raise DeployError(
            "verify.downgrade",
            f"release {manifest.release} has sequence {manifest.sequence}, channel {manifest.channel} is at {highest}",
            hint="push a newer bundle; to go back, edge-deploy rollback --to, or sign this one as a downgrade",
            evidence={"sequence": manifest.sequence, "highest": highest, "channel": manifest.channel},
        )


def check_not_bad(device: Device, release: str) -> None:
    """Raise DeployError `preflight.bad` if the release has failed on this device before."""
    bad = read_bad(device.layout, device.durable.files).get(release)
    if bad is not None:
        raise DeployError(
            "preflight.bad",
            f"release {release} has failed on this device at {bad.at}: {bad.reason}",
            hint="push another release; if the cause is gone, push it again with --retry-bad",
            evidence={"verdict": bad.verdict.value, "reason": bad.reason, "at": bad.at},
        )


def check_trusted_state(device: Device) -> None:
    """Raise DeployError `person.failed` if the device has stopped trying."""
    state = device.state()
    if state.phase is Phase.FAILED:
        raise DeployError(
            "person.failed",
            f"the device stopped trying at {state.started_at}: {state.reason}",
            hint="edge-deploy rollback --to a release that is kept, or push a good one with --retry-bad",
        )
