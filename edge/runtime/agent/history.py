"""What a device has been through with releases: how far it has come, and which of them failed here."""

from __future__ import annotations

from edge.bundle.manifest import Manifest
from edge.device.bad import read_bad
from edge.device.counters import Counters
from edge.device.device import Device
from edge.device.settings import read_settings
from edge.device.state import Phase, State
from edge.errors import DeployError
from edge.wire.status import LastSwitch

__all__ = ["channels_of", "check_not_bad", "check_trusted_state", "counters_of", "last_of", "spent_by"]


def counters_of(manifest: Manifest) -> Counters:
    """Return what a device has seen once it has taken the release."""
    return Counters(sequences={manifest.channel: manifest.sequence}, newest_created_at=manifest.created_at)


def spent_by(manifest: Manifest, *, is_downgrade: bool) -> Counters:
    """Return what a device has seen once the release goes on trial.

    A permission to go back fits one counter, and moves it on: so it is used once, and a cut does not give it back.
    """
    seen = counters_of(manifest)
    if not is_downgrade or manifest.downgrade_from is None:
        return seen
    return seen.merged(Counters(sequences={manifest.channel: manifest.downgrade_from + 1}))


def channels_of(device: Device, counters: Counters) -> tuple[str, ...]:
    """Return the channels that a device is bound to: those of its device.toml, or else what it has taken so far."""
    stated = read_settings(device.layout.device_toml).channels
    return stated or tuple(sorted(counters.sequences))


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


def last_of(state: State) -> LastSwitch | None:
    """Return how the last switch ended; None where there was none."""
    last = state.last
    if not last:
        return None
    return LastSwitch(
        release=last.get("release"),
        before=last.get("from"),
        result=str(last.get("result")),
        reason=last.get("reason"),
        at=str(last.get("at")),
    )
