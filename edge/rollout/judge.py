"""What the devices of the rings say, weighed by the rules: wait, go on, or stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from edge.rollout.device import DeviceStanding, RolloutDevice, standing_of
from edge.rollout.rules import Rules
from edge.rollout.state import RingState, RolloutState

__all__ = ["Decision", "RingTally", "judge_rollout", "tally_of"]


@dataclass(frozen=True, slots=True)
class RingTally:
    """How the devices of one ring stand: those that the broker knows now, each with its standing and why."""

    ring: str
    known: int
    devices: Mapping[str, tuple[DeviceStanding, str | None]]

    def count(self, *standings: DeviceStanding) -> int:
        """Return how many stand so."""
        return sum(standing in standings for standing, _ in self.devices.values())

    @property
    def failed(self) -> int:
        """How many speak against the release."""
        return sum(standing.has_failed for standing, _ in self.devices.values())

    @property
    def counted(self) -> int:
        """How many could have taken it."""
        return len(self.devices) - self.count(DeviceStanding.SILENT)

    @property
    def unheard(self) -> int:
        """How many say nothing, those with them that the broker does not know any more."""
        return self.count(DeviceStanding.SILENT, DeviceStanding.LOST) + max(0, self.known - len(self.devices))

    def reasons(self) -> list[tuple[str, int]]:
        """Return why devices have failed, the most frequent first."""
        whys = Counter(why or standing.value for standing, why in self.devices.values() if standing.has_failed)
        return whys.most_common()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and why.

    `is_reached`: enough of the ring that got it last have committed it.
    """

    what: Literal["wait", "advance", "finish", "stop"]
    why: str
    is_reached: bool = False


def tally_of(state: RolloutState, ring: RingState, devices: Iterable[RolloutDevice], *, now: datetime) -> RingTally:
    """Return how the devices of a ring stand; of one that has not begun, as if it did now."""
    began_at = now if ring.began_at is None else ring.began_at
    found = {
        device.name: standing_of(
            device,
            state.release,
            began_at=began_at,
            silent_since=None if device.is_there else state.silent.get(device.name, now),
            now=now,
            lost_after_s=state.rules.lost_after_s,
        )
        for device in devices
        if device.ring == ring.name
    }
    return RingTally(ring.name, max(ring.known, len(found)), found)


def judge_rollout(state: RolloutState, tallies: Sequence[RingTally], *, now: datetime) -> Decision:
    """Return what is to be done with a rollout that is running; `tallies` are of its rings that have begun, in order.

    A failure counts in every ring that has begun, so that a release that turns out to be bad later is stopped, too.
    """
    rules = state.rules
    for tally in tallies:
        if tally.failed > _part(rules.max_failed, tally.counted):
            return Decision("stop", _failing(tally, rules))
    tally, ring = tallies[-1], state.current
    reached, why = _reached(tally, rules)
    if not reached:
        return Decision("wait", why)
    held_s = 0.0 if ring.reached_at is None else max(0.0, (now - ring.reached_at).total_seconds())
    if ring.reached_at is None or held_s < rules.hold_s:
        return Decision("wait", f"{why}; held {held_s:.0f} of {rules.hold_s:g} s", is_reached=True)
    if state.following is None:
        return Decision("finish", why, is_reached=True)
    return Decision("advance", why, is_reached=True)


def _reached(tally: RingTally, rules: Rules) -> tuple[bool, str]:
    if not tally.counted:
        return False, f"{tally.ring}: none of its {tally.known} devices is there"
    if tally.unheard > _part(rules.max_silent, tally.known):
        return False, (
            f"{tally.ring}: {tally.unheard} of {tally.known} devices say nothing, "
            f"more than {_percent(rules.max_silent)}: nobody can tell how they are"
        )
    done = tally.count(DeviceStanding.COMMITTED)
    why = f"{tally.ring}: {done} of {tally.counted} devices have committed it"
    if done < _part(rules.share, tally.counted):
        return False, f"{why}, {_percent(rules.share)} are asked for"
    return True, why


def _part(share: float, count: int) -> float:
    """Return a share of so many devices, without what binary fractions add to it: 55 % of 100 are 55."""
    return round(share * count, 6)


def _failing(tally: RingTally, rules: Rules) -> str:
    reasons = ", ".join(f"{why} ({count})" for why, count in tally.reasons()[:3])
    return (
        f"{tally.ring}: {tally.failed} of {tally.counted} devices have failed, "
        f"more than {_percent(rules.max_failed)}: {reasons}"
    )


def _percent(share: float) -> str:
    return f"{share * 100:g} %"
