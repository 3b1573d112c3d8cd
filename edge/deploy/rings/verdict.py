"""What devices said last, how those of a ring stand to a release by that, and what follows. No I/O and no clock."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal

from edge.publish.message import WireMessage
from edge.publish.messages import DeployMessage, PullMessage, StateMessage

__all__ = ["Condition", "Decision", "DeviceStanding", "Heard", "RingTally", "decide", "tally_of"]

# What is wrong with this release on this device; the rest is the network's, or a lock that somebody holds.
_FINAL = ("verify.", "preflight.", "build.", "smoke.", "request.")
_OF_NO_RELEASE = "verify.ring."  # of the statement, which says nothing of the release
_MOST_SILENT = 0.25
_LOST_AFTER_S = 1800.0
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_CONDITION = re.compile(
    r"(\d{1,3}(?:\.\d+)?)% of ([a-z0-9-]{1,32})(?: for (\d{1,6}(?:\.\d+)?)([smhd]))?"
    r"(?:, at most (\d{1,3}(?:\.\d+)?)% failed)?"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """When the next ring gets a release: `share` of those of `ring` that are there has committed it, for `hold_s`.

    With more than `max_failed` (a share of them, too) it is over.
    """

    share: float
    ring: str
    hold_s: float
    max_failed: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return what `95% of canary for 1h, at most 2% failed` says; ValueError with what is wrong."""
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"expected such as '95% of canary for 1h, at most 2% failed', got {text[:100]!r}")
        hold_s = 0.0 if match[3] is None else float(match[3]) * _UNITS_S[match[4]]
        share = float(match[1]) / 100.0
        max_failed = max(0.0, min(0.02, 1.0 - share)) if match[5] is None else float(match[5]) / 100.0
        if not 0.0 < share <= 1.0:
            raise ValueError(f"expected a share of more than 0% and at most 100%, got {match[1]}%")
        if share + max_failed > 1.0 + 1e-9:
            raise ValueError(f"expected shares of at most 100% together, got {match[1]}% and {max_failed * 100:g}%")
        return cls(share, match[2], hold_s, max_failed)


class DeviceStanding(Enum):
    """State of a device in a ring; the words are those of tables and JSON."""

    COMMITTED = "committed"
    DEGRADED = "degraded"
    ROLLED_BACK = "rolled-back"
    REFUSED = "refused"
    LOST = "lost"
    WAITING = "waiting"
    SILENT = "silent"

    @property
    def has_failed(self) -> bool:
        return self in _FAILED


_FAILED = (DeviceStanding.DEGRADED, DeviceStanding.ROLLED_BACK, DeviceStanding.REFUSED, DeviceStanding.LOST)


@dataclass(frozen=True, slots=True)
class Heard:
    """The last words of one device: how it is, its last switch, its last look at the registry."""

    state: StateMessage | None = None
    deploy: DeployMessage | None = None
    pull: PullMessage | None = None

    def after(self, message: WireMessage) -> Heard:
        match message:
            case StateMessage():
                return self if _is_overtaken(message, self.state) else replace(self, state=message)
            case DeployMessage():
                return replace(self, deploy=message)
            case PullMessage():
                return replace(self, pull=message)
            case _:
                return self

    def without(self, topic: str) -> Heard:
        return replace(self, **{topic: None})

    @property
    def is_there(self) -> bool:
        return self.state is not None and self.state.state != "offline"

    @property
    def ring(self) -> str | None:
        """None: it fetches no releases."""
        return None if self.pull is None else self.pull.ring

    def standing(
        self, release: str, *, began_at: datetime, silent_s: float | None
    ) -> tuple[DeviceStanding, str | None]:
        """Return how it stands to what its ring is to run since `began_at`, and why.

        `silent_s`: for so long it has been seen to be away, after it was there; None: it was not there at all.
        """
        if not self.is_there:
            if silent_s is not None and silent_s > _LOST_AFTER_S:
                return DeviceStanding.LOST, "it was there, and has said nothing since"
            if silent_s is None:
                return DeviceStanding.SILENT, None
        switched, pulled, state = self.deploy, self.pull, self.state
        if switched is not None and switched.release == release and switched.result != "committed":
            return DeviceStanding.ROLLED_BACK, switched.reason or switched.result
        if self._serves(release):
            # By its own clock; one that was so before speaks of nothing that the release has done.
            if state is not None and state.state == "degraded" and _time(state.since, began_at) >= began_at:
                return DeviceStanding.DEGRADED, state.reason or state.state
            return DeviceStanding.COMMITTED, None
        if pulled is None or not pulled.code:
            return DeviceStanding.WAITING, None
        is_final = pulled.code.startswith(_FINAL) and not pulled.code.startswith(_OF_NO_RELEASE)
        is_refused = is_final and pulled.release == release
        return DeviceStanding.REFUSED if is_refused else DeviceStanding.WAITING, f"{pulled.code}: {pulled.reason}"

    def _serves(self, release: str) -> bool:
        """Return whether its last switch has led to `release`, or has led back to it and its last look left it so."""
        switched, pulled = self.deploy, self.pull
        if switched is not None and (switched.result, switched.from_) != ("rolled-back", release):
            return switched.release == release
        return pulled is not None and pulled.release == release and pulled.result in ("unchanged", "committed")


@dataclass(frozen=True, slots=True)
class RingTally:
    """How the devices that count stand, each with why; `others` speak for the ring, too, and do not count.

    `committed_at` says when each of those did that have committed it, earliest first.
    """

    ring: str
    devices: Mapping[str, tuple[DeviceStanding, str | None]]
    others: tuple[str, ...]
    committed_at: tuple[datetime, ...]

    def count(self, *standings: DeviceStanding) -> int:
        return sum(standing in standings for standing, _ in self.devices.values())

    @property
    def failed(self) -> int:
        return sum(standing.has_failed for standing, _ in self.devices.values())

    @property
    def counted(self) -> int:
        """How many could have taken it."""
        return len(self.devices) - self.count(DeviceStanding.SILENT)

    def reasons(self, *, has_failed: bool) -> str:
        """Return why devices have failed, or why others are waited for, the three most frequent; "" for no reason."""
        whys = Counter(why for standing, why in self.devices.values() if why and standing.has_failed == has_failed)
        return ", ".join(f"{why} ({count})" for why, count in whys.most_common(3))


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a ring, and its reason."""

    what: Literal["wait", "promote", "stop"]
    why: str


def tally_of(
    ring: str,
    members: Collection[str],
    devices: Mapping[str, Heard],
    release: str,
    *,
    began_at: datetime,
    now: datetime,
    silent_s: Mapping[str, float],
) -> RingTally:
    """Return how the `members` of a ring stand, as `site/device`, and which others speak for it.

    A member without words is silent, one that says another ring waits. `began_at` and `now` are of one clock;
    `silent_s` is for how long devices are seen to be away that were there before.
    """
    found: dict[str, tuple[DeviceStanding, str | None]] = {}
    times = []
    for name in sorted(members):
        device = devices.get(name)
        if device is None:
            found[name] = DeviceStanding.SILENT, None
        elif device.ring != ring:
            found[name] = DeviceStanding.WAITING, f"it says that it is of {device.ring}"
        else:
            found[name] = device.standing(release, began_at=began_at, silent_s=silent_s.get(name))
            if found[name][0] is DeviceStanding.COMMITTED:
                at = began_at if device.deploy is None else _time(device.deploy.at, now)
                times.append(min(now, max(began_at, at)))
    others = tuple(sorted(name for name, device in devices.items() if device.ring == ring and name not in members))
    return RingTally(ring, found, others, tuple(sorted(times)))


def decide(tally: RingTally, condition: Condition, *, now: datetime) -> Decision:
    counted, done = tally.counted, tally.count(DeviceStanding.COMMITTED)
    if tally.failed > _part(condition.max_failed, counted):
        most = f"more than {condition.max_failed * 100:g} %: {tally.reasons(has_failed=True)}"
        return Decision("stop", f"{tally.ring}: {tally.failed} of {counted} devices have failed, {most}")
    silent = tally.count(DeviceStanding.SILENT)
    if not counted or silent > _part(_MOST_SILENT, len(tally.devices)):
        return Decision("wait", f"{tally.ring}: {silent} of {len(tally.devices)} devices say nothing")
    needed = max(1, math.ceil(_part(condition.share, counted)))
    why = f"{tally.ring}: {done} of {counted} devices have committed it"
    if done < needed:
        return Decision("wait", f"{why}, {needed} are asked for")
    held = now - tally.committed_at[needed - 1]
    if held < timedelta(seconds=condition.hold_s):
        return Decision("wait", f"{why}; held {held.total_seconds():.0f} of {condition.hold_s:g} s")
    return Decision("promote", why)


def _part(share: float, count: int) -> float:
    """Return a share of so many devices, without what binary fractions add to it: 55 % of 100 are 55."""
    return round(share * count, 6)


def _time(text: str | None, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    return found if found.tzinfo is not None else otherwise


def _is_overtaken(message: StateMessage, before: StateMessage | None) -> bool:
    """Return whether it is the late Will of a connection that was replaced."""
    return before is not None and message.state == "offline" and message.session != before.session
