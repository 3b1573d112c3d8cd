"""States and withdraws releases of rings. A stop always wins: it is a fact that no statement writes over.

The author of a statement looks again after it: at what was withdrawn, and at statements of a higher serial, so that
one who slept in between undoes what it did too late. Devices look at withdrawals themselves before they take a release.

Waits until a ring has taken a release well enough, by what devices say, and by nothing that it remembers itself.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.sign import sign
from edge.bundle.statement import RING, RingStatement, encode_statement
from edge.deadline import Deadline
from edge.deploy.rings.desk import PublishedRelease, RingDesk, Stated, Withdrawal
from edge.deploy.rings.verdict import Condition, Decision, Heard, RingTally, decide, tally_of
from edge.errors import DeployError
from edge.registry.artifact import with_statement
from edge.registry.reference import ring_tag
from edge.untrusted import cleaned

__all__ = ["Promoted", "Promoter", "RingWatch", "wait_for"]

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TRIES = 3
_STEP_S = 0.2
_PASSING = ("registry.unreachable", "registry.failed", "registry.busy", "registry.slow")


@dataclass(frozen=True, slots=True)
class Promoted:
    """A statement that was made; `beside` are serials that others have made at the same time, which are below it."""

    statement: RingStatement
    beside: tuple[int, ...] = ()


def this_second() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def check_not_withdrawn(desk: RingDesk, release: str) -> None:
    """Raise DeployError `request.withdrawn` if no further device is to take a release."""
    found = desk.withdrawal(release)
    if found is not None:
        raise DeployError(
            "request.withdrawn",
            f"release {release} was withdrawn by {found.by} at {found.at}: {found.why}",
            hint=f"edge-deploy withdraw {release} --lift takes that back, and nothing else does",
        )


class Promoter:
    """States what rings run, signed by `key`. Every method raises DeployError `registry.*`, `bundle.key`."""

    def __init__(
        self, desk: RingDesk, key: Path, *, valid_s: float = 30 * 86_400, clock: Callable[[], datetime] = this_second
    ) -> None:
        self._desk, self._key, self._valid_s, self._clock = desk, key, valid_s, clock

    def promote(self, release: PublishedRelease, ring: str) -> Promoted:
        """Have a ring run a release.

        DeployError: `request.withdrawn`; `request.release` for one that is not newer than what the ring has;
        `lock.rings` if somebody else has stated something later meanwhile, which stands.
        """
        manifest = release.manifest
        check_not_withdrawn(self._desk, manifest.release)
        tag = ring_tag(manifest.channel, ring)
        last = self._desk.latest(tag)
        before = None if last is None else last.statement
        is_other = before is not None and before.release != manifest.release
        if before is not None and before.sequence is not None and before.sequence + is_other > manifest.sequence:
            raise DeployError(
                "request.release",
                f"{tag} has release {before.release} with sequence {before.sequence}, {manifest.release} has "
                f"{manifest.sequence}: devices do not go back by themselves",
                hint="give it a new sequence: edge-deploy bundle --again OLD.bundle",
            )
        return self._state(tag, manifest.channel, ring, release, 0 if before is None else before.serial)

    def withdraw(self, release: str, channel: str, why: str) -> list[str]:
        """Let no further device take a release; return the tags of rings that had it. A device that has it keeps it."""
        self.mark(release, why)
        return [tag for tag in self._desk.rings(channel) if self._empty(tag, release)]

    def mark(self, release: str, why: str) -> None:
        """Mark a release as withdrawn: unsigned, and devices follow it (ADR 19)."""
        if self._desk.withdrawal(release) is None:
            at = self._clock().strftime(_TIME)
            self._desk.withdraw(Withdrawal(release, cleaned(why)[:300], _who_am_i(), at))

    def _empty(self, tag: str, release: str) -> bool:
        """State that a ring runs nothing, as long as it was to run a release; return whether it was."""
        has_been = False
        for _ in range(_TRIES):
            last = self._desk.latest(tag)
            if last is None or last.statement.release != release:
                break
            has_been = True
            try:
                self._state(tag, last.statement.channel, last.statement.ring, None, last.statement.serial)
            except DeployError as error:
                if error.code != "lock.rings":  # somebody else has stated something meanwhile
                    raise
        return has_been

    def _state(self, tag: str, channel: str, ring: str, release: PublishedRelease | None, last: int) -> Promoted:
        now = self._clock()
        statement = RingStatement(
            channel=channel,
            ring=ring,
            release=None if release is None else release.manifest.release,
            sequence=None if release is None else release.manifest.sequence,
            serial=max(last + 1, int(now.timestamp())),
            created_at=now.strftime(_TIME),
            valid_until=(now + timedelta(seconds=self._valid_s)).strftime(_TIME),
        )
        content = encode_statement(statement)
        oci = self._desk.nothing() if release is None else release.oci
        mine = Stated(statement, with_statement(oci, content, sign(content, self._key, RING)))
        self._desk.state(mine)
        return self._settled(tag, mine, last)

    def _settled(self, tag: str, mine: Stated, last: int) -> Promoted:
        """Look at what has happened meanwhile, and make the tag name what stands; return what was stated."""
        serial, release = mine.statement.serial, mine.statement.release
        for _ in range(_TRIES):
            latest = self._desk.latest(tag)
            if latest is None or (latest.statement.serial, latest.oci) != (serial, mine.oci):
                if latest is not None:
                    self._desk.state(latest)
                raise _overtaken(tag, latest)
            if release is not None and self._desk.withdrawal(release) is not None:
                self._empty(tag, release)
                check_not_withdrawn(self._desk, release)
            named = self._desk.named_by(tag)
            if named is not None and named.statement.serial == serial:
                between = [one for one in self._desk.serials(tag) if last < one < serial]
                return Promoted(mine.statement, tuple(between))
            self._desk.state(mine)
        raise _overtaken(tag, self._desk.named_by(tag))


def _overtaken(tag: str, now: Stated | None) -> DeployError:
    what = "something else"
    if now is not None:
        what = f"statement {now.statement.serial}, of {now.statement.release or 'nothing'}"
    return DeployError(
        "lock.rings",
        f"{tag}: somebody else has stated {what} at the same time, and that stands",
        hint="look at edge-deploy fleet; the same command again states it anew",
    )


def _who_am_i() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container that runs as a number which has no name there
        user = str(os.getuid())
    return cleaned(f"{user}@{socket.gethostname()}")[:80]


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

    def look(self, devices: Mapping[str, Heard]) -> tuple[RingTally, Decision]:
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

    def _silent_s(self, devices: Mapping[str, Heard]) -> dict[str, float]:
        at_s = self._boottime_s()
        for name, device in devices.items():
            if device.is_there:
                self._was_there.add(name)
                self._away_since_s.pop(name, None)
            elif name in self._was_there:
                self._away_since_s.setdefault(name, at_s)
            elif device.deploy is not None and device.deploy.release == self._release:
                self._away_since_s.setdefault(name, at_s)  # it has taken the release, so it was there
        return {name: at_s - since_s for name, since_s in self._away_since_s.items()}


def wait_for(
    watch: RingWatch,
    hear: Callable[[], Mapping[str, Heard] | None],
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
        pause_s = _STEP_S if devices is None else every_s
        pause.wait(pause_s if deadline is None else min(pause_s, deadline.left_s))
