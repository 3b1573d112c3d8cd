"""How one device stands to a release, by what it said last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["DeviceStanding", "ReleaseOutcome", "RolloutDevice", "standing_of"]

# What is wrong with this release on this device; the rest is the network's, or a lock that somebody holds.
_FINAL = ("verify.", "preflight.", "build.", "smoke.", "request.")


class DeviceStanding(Enum):
    """What counts of a device; the words are those of tables and JSON."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    REFUSED = "refused"
    LOST = "lost"
    WAITING = "waiting"
    SILENT = "silent"

    @property
    def has_failed(self) -> bool:
        """Whether it speaks against the release."""
        return self in (DeviceStanding.ROLLED_BACK, DeviceStanding.REFUSED, DeviceStanding.LOST)


@dataclass(frozen=True, slots=True)
class ReleaseOutcome:
    """What a device said of a release: of its last switch, or of its last look at the registry; `code` of an error."""

    release: str | None
    result: str
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDevice:
    """The last words of one device.

    Attributes:
        name: `site/device`, as the broker knows it.
        ring: that it says it belongs to.
        is_there: whether it has a connection to the broker.
        switched: how its last switch ended (`edge.deploy/1`).
        pulled: what its last look at the registry came to (`edge.pull/1`).
    """

    name: str
    ring: str
    is_there: bool
    switched: ReleaseOutcome | None = None
    pulled: ReleaseOutcome | None = None


def standing_of(
    device: RolloutDevice,
    release: str,
    *,
    began_at: datetime,
    silent_since: datetime | None,
    now: datetime,
    lost_after_s: float,
) -> tuple[DeviceStanding, str | None]:
    """Return how a device stands to `release`, and why.

    Args:
        device: what it said.
        release: what its ring is to run.
        began_at: when the ring got it.
        silent_since: when it was first seen to be away; None: it was never.
        now: of the same clock.
        lost_after_s: as in `Rules`.
    """
    if not device.is_there and silent_since is not None:
        if silent_since <= began_at:
            return DeviceStanding.SILENT, None
        if (now - silent_since).total_seconds() > lost_after_s:
            return DeviceStanding.LOST, "it was there, and has said nothing since"
    switched, pulled = device.switched, device.pulled
    if switched is not None and switched.release == release:
        if switched.result == "committed":
            return DeviceStanding.COMMITTED, None
        return DeviceStanding.ROLLED_BACK, switched.reason or switched.result
    if pulled is not None and pulled.release == release and (pulled.code or "").startswith(_FINAL):
        return DeviceStanding.REFUSED, f"{pulled.code}: {pulled.reason}"
    return DeviceStanding.WAITING, None
