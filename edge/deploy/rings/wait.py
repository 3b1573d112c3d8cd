"""Waits until a ring has taken a release well enough; by what devices say, and by nothing that it remembers itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime

from edge.deadline import Deadline
from edge.deploy.rings.desk import RingDesk
from edge.deploy.rings.hearing import Hearing
from edge.deploy.rings.promote import check_not_withdrawn, this_second
from edge.deploy.rings.verdict import Condition, Decision, RingDevice, RingTally, decide, tally_of
from edge.errors import DeployError, PublishError
from edge.registry.reference import ring_tag

__all__ = ["RingWatch", "hear_all", "wait_for"]

_STEP_S = 0.2
_HEAR_S = 120.0
_PASSING = ("registry.unreachable", "registry.failed", "registry.busy", "registry.slow")


def hear_all(hearing: Hearing) -> None:
    """Wait until all that the broker has kept has come; PublishError if it has not within two minutes."""
    deadline, pause = Deadline.after(_HEAR_S), threading.Event()
    while not hearing.is_complete:
        if deadline.is_over:
            problem = f"the broker has not told all that it keeps within {_HEAR_S:.0f} s"
            raise PublishError(problem, hint="look at the broker")
        pause.wait(_STEP_S)


class RingWatch:
    """Judges whether a release may go on from the ring of `condition`, whose devices are `members`.

    `boottime_s` counts how long a device is away: also while this machine sleeps.
    """

    def __init__(
        self,
        desk: RingDesk,
        channel: str,
        release: str,
        condition: Condition,
        members: Collection[str],
        *,
        clock: Callable[[], datetime] = this_second,
        boottime_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._desk, self._release, self._condition, self._members = desk, release, condition, members
        self._tag, self._clock, self._boottime_s = ring_tag(channel, condition.ring), clock, boottime_s
        self._was_there: set[str] = set()
        self._away_since_s: dict[str, float] = {}

    def look(self, devices: Collection[RingDevice]) -> tuple[RingTally, Decision]:
        """Return how the ring stands now and what follows.

        DeployError: `request.withdrawn`; `request.ring` if the ring is to run something else by now; `registry.*`.
        """
        check_not_withdrawn(self._desk, self._release)
        stated = self._desk.named_by(self._tag)
        if stated is None or stated.statement.release != self._release:
            has = "nothing" if stated is None else stated.statement.release or "nothing"
            raise DeployError(
                "request.ring",
                f"{self._tag} is to run {has}, not {self._release}: its devices can tell nothing of it",
                hint=f"edge-deploy promote {self._release} {self._condition.ring} first",
            )
        now = self._clock()
        began_at = datetime.fromisoformat(stated.statement.created_at.replace("Z", "+00:00"))
        tally = tally_of(
            self._condition.ring,
            self._members,
            devices,
            self._release,
            began_at=began_at,
            now=now,
            silent_s=self._silent_s(devices),
        )
        return tally, decide(tally, self._condition, now=now)

    def _silent_s(self, devices: Collection[RingDevice]) -> dict[str, float]:
        at_s = self._boottime_s()
        for device in devices:
            if device.is_there:
                self._was_there.add(device.name)
                self._away_since_s.pop(device.name, None)
            elif device.name in self._was_there:
                self._away_since_s.setdefault(device.name, at_s)
            elif device.switched is not None and device.switched.release == self._release:
                self._away_since_s.setdefault(device.name, at_s)  # it has taken the release, so it was there
        return {name: at_s - since_s for name, since_s in self._away_since_s.items()}


def wait_for(
    watch: RingWatch,
    hear: Callable[[], Collection[RingDevice] | None],
    *,
    every_s: float,
    within_s: float | None,
    on_look: Callable[[RingTally, Decision], None],
    say: Callable[[str], None],
) -> Decision:
    """Look every `every_s` seconds; return the decision to go on or to stop, or to wait once `within_s` is over.

    `hear` returns the words of all devices; None while the broker is not there: what was heard may not be so any more.
    """
    deadline = None if within_s is None else Deadline.after(within_s)
    pause, decision = threading.Event(), Decision("wait", "nothing was heard yet")
    while True:
        devices = hear()
        if devices is not None:
            try:
                tally, decision = watch.look(devices)
                on_look(tally, decision)
            except DeployError as error:
                if error.code not in _PASSING:
                    raise
                say(f"{error}; looked at again")
        if decision.what != "wait" or (deadline is not None and deadline.is_over):
            return decision
        pause.wait(_STEP_S if devices is None else every_s)
