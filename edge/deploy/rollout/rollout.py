"""A rollout: started, looked at, moved on, stopped; each step is written down before it is taken.

The state says what the tags are to name. So whoever comes after somebody who broke off between the two only has to make
it so; and what is done twice is done once.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from edge.deploy.rollout.kept import KeptRollout
from edge.deploy.rollout.rings import PublishedRelease, RingTags
from edge.errors import DeployError
from edge.registry.reference import ring_tag
from edge.rollout.device import RolloutDevice
from edge.rollout.judge import Decision, RingTally, judge_rollout, tally_of
from edge.rollout.rules import Rules
from edge.rollout.state import RingState, RolloutState
from edge.untrusted import cleaned

__all__ = ["ChannelRollout", "Look", "this_second", "who_am_i"]

_NOTES_S = 600.0


@dataclass(frozen=True, slots=True)
class Look:
    """A rollout as it stands: `tallies` of all its rings, `decision` None where it is over.

    `others`: how many devices belong to rings that are none of it, by ring. `is_noted`: whether it is kept
    since when who is silent.
    """

    state: RolloutState
    tallies: tuple[RingTally, ...]
    decision: Decision | None
    others: dict[str, int]
    at: datetime
    is_noted: bool = True


def this_second() -> datetime:
    """Return the time, UTC, whole seconds."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def who_am_i() -> str:
    """Return who takes a step, for others to read."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container that runs as a number which has no name there
        user = str(os.getuid())
    return cleaned(f"{user}@{socket.gethostname()}")[:80]


class ChannelRollout:
    """The rollout of one channel. Every method raises DeployError `registry.*`, and `lock.rings` where it writes."""

    def __init__(
        self,
        kept: KeptRollout,
        tags: RingTags,
        *,
        who: str,
        clock: Callable[[], datetime] = this_second,
    ) -> None:
        self._kept, self._tags, self._who, self._clock = kept, tags, who, clock
        self._noted_at: datetime | None = None
        self._seen: RolloutState | None = None  # with who is silent, also where that is not noted yet

    def start(
        self, release: PublishedRelease, rings: Sequence[str], rules: Rules, devices: Sequence[RolloutDevice]
    ) -> RolloutState:
        """Give a release to the first of `rings`, each of which has a device.

        Raises:
            DeployError: `lock.rings` while another is running, `request.ring`, `request.release` for one that is older
                than what a ring has.
        """
        manifest, now = release.manifest, self._clock()
        before = self._kept.read()
        if before is not None and before.phase == "running":
            began = before.rings[0].began_at
            raise DeployError(
                "lock.rings",
                f"release {before.release} of {before.channel} is being rolled out since {began:%Y-%m-%dT%H:%M:%SZ}",
                hint="edge-deploy rollout watch goes on with it, edge-deploy rollout stop ends it",
            )
        _check_rings(rings, devices)
        known = {ring: sum(device.ring == ring for device in devices) for ring in rings}
        made = [RingState(name=ring, known=known[ring], before=self._before(release, ring, before)) for ring in rings]
        made[0] = msgspec.structs.replace(made[0], began_at=now)
        state = RolloutState(
            serial=0 if before is None else before.serial,
            claim="",
            channel=manifest.channel,
            release=manifest.release,
            digest=release.digest,
            sequence=manifest.sequence,
            rules=rules,
            rings=tuple(made),
            silent={device.name: now for device in devices if not device.is_there},
        )
        return self._write(state, f"started: {', '.join(rings)}; {rings[0]} has it")

    def look(self, devices: Sequence[RolloutDevice]) -> Look:
        """Return how it stands, by the state that is kept now and by what devices say.

        Raises:
            DeployError: `request.rollout`, if there never was one.
        """
        return self._judged(self.kept_state(), devices)

    def kept_state(self) -> RolloutState:
        """Return the state that is kept; DeployError `request.rollout`, if there is none."""
        state = self._kept.read()
        if state is None:
            raise DeployError(
                "request.rollout", "nothing has been rolled out there", hint="begin with edge-deploy rollout start"
            )
        return state

    def go_on(self, look: Look) -> RolloutState:
        """Take the step that `look` asks for, if any, and write down what has to be known later; return the state."""
        state, decision = look.state, look.decision
        if decision is None:
            if state.phase == "stopped":  # by somebody who broke off, or while a registry took its time over a tag
                return self._follow(state)
            return state
        if decision.what == "stop":
            return self.stop(state, decision.why)
        if decision.what in ("advance", "finish"):
            return self.advance(state, decision.why, at=look.at)
        current = state.current
        if decision.is_reached != (current.reached_at is not None):
            changed = msgspec.structs.replace(current, reached_at=look.at if decision.is_reached else None)
            what = f"{current.name} {'has reached its share' if decision.is_reached else 'has fallen below its share'}"
            return self._write(state, what, rings=state.with_ring(changed))
        if self._is_news(look):
            self._noted_at = look.at
            return self._write(state, None)
        return self._follow(state)

    def advance(self, state: RolloutState, why: str, *, at: datetime | None = None) -> RolloutState:
        """Give the release to the next ring; where all have it, it is done. What broke off is finished first, alone."""
        if self._tags.digest_of(state.channel, state.current.name) != state.digest:
            return self._follow(state)
        following, now = state.following, at or self._clock()
        if following is None:
            return self._write(state, f"done: {why}", phase="done")
        self._check_tag(state, following)
        begun = msgspec.structs.replace(following, began_at=now)
        return self._write(state, f"{following.name} has it: {why}", rings=state.with_ring(begun))

    def stop(self, state: RolloutState, why: str) -> RolloutState:
        """Have nobody else take the release: its rings name again what they did before; who has it keeps it."""
        return self._write(state, f"stopped: {why}", phase="stopped", why=why)

    def _judged(self, state: RolloutState, devices: Sequence[RolloutDevice]) -> Look:
        now, kept = self._clock(), state.silent
        if self._seen is not None and self._seen.claim == state.claim:
            state = self._seen
        self._seen = state = msgspec.structs.replace(state, silent=_silent(state, devices, now))
        tallies = tuple(tally_of(state, ring, devices, now=now) for ring in state.rings)
        begun = tallies[: len(state.begun)]
        ours = {ring.name for ring in state.rings}
        others: dict[str, int] = {}
        for device in devices:
            if device.ring not in ours:
                others[device.ring] = others.get(device.ring, 0) + 1
        decision = judge_rollout(state, begun, now=now) if state.phase == "running" else None
        return Look(state, tallies, decision, others, now, is_noted=kept == state.silent)

    def _is_news(self, look: Look) -> bool:
        """Return whether who is silent since when is to be written down now: the first time at once, then rarely."""
        is_due = self._noted_at is None or (look.at - self._noted_at).total_seconds() >= _NOTES_S
        return is_due and not look.is_noted

    def _write(self, state: RolloutState, what: str | None, **values: object) -> RolloutState:
        after = state.changed(at=self._clock(), by=self._who, what=what, claim=secrets.token_hex(8), **values)
        self._kept.write(after)
        return self._follow(after)

    def _follow(self, state: RolloutState) -> RolloutState:
        """Make the tags name what the state says now, until nobody has changed it meanwhile; return that state.

        `state` may be older than what is kept: a release that was stopped since is not given to a ring again.

        Raises:
            DeployError: `request.ring`, if a tag names a third thing: somebody has published there.
        """
        followed_serial = None
        while (now := self._kept.read()) is not None and now.serial != followed_serial:
            self._move_all(now)
            state, followed_serial = now, now.serial
        return state

    def _move_all(self, state: RolloutState) -> None:
        """Move what is to be moved; a ring that cannot be given back keeps no other from being."""
        failed: list[DeployError] = []
        for ring in state.begun:
            try:
                self._move(state, ring)
            except DeployError as error:
                if state.phase != "stopped":
                    raise
                failed.append(error)
        if failed:
            raise failed[0]

    def _move(self, state: RolloutState, ring: RingState) -> None:
        if state.phase == "stopped":
            if self._tags.digest_of(state.channel, ring.name) == state.digest != ring.before:
                if ring.before is None:
                    self._tags.take_away(state.channel, ring.name)
                else:
                    self._tags.give(state.channel, ring.name, ring.before)
        elif state.phase == "running" and self._check_tag(state, ring) != state.digest:
            self._tags.give(state.channel, ring.name, state.digest)

    def _check_tag(self, state: RolloutState, ring: RingState) -> str | None:
        """Return what a ring's tag names; DeployError `request.ring` if that is a third thing."""
        now = self._tags.digest_of(state.channel, ring.name)
        if now not in (None, ring.before, state.digest):
            raise DeployError(
                "request.ring",
                f"{ring_tag(state.channel, ring.name)} names another artifact by now ({now[:19]}): "
                "somebody has published to that ring while it was rolled out",
                hint="edge-deploy rollout stop leaves it as it is; or publish the release to the ring once more",
            )
        return now

    def _before(self, release: PublishedRelease, ring: str, last: RolloutState | None) -> str | None:
        found = self._tags.release_of(release.manifest.channel, ring)
        if found is None:
            return self._tags.digest_of(release.manifest.channel, ring)  # what says that there is none
        if found.manifest.sequence > release.manifest.sequence:
            raise DeployError(
                "request.release",
                f"{ring_tag(release.manifest.channel, ring)} has release {found.manifest.release} with sequence "
                f"{found.manifest.sequence}, {release.manifest.release} has {release.manifest.sequence}: "
                "devices do not go back by themselves",
                hint="bundle it again, which gives it a new sequence",
            )
        if last is not None and found.digest == release.digest == last.digest:
            # It has it by the last rollout, which has not been given back.
            return next((one.before for one in last.rings if one.name == ring), found.digest)
        return found.digest


def _silent(state: RolloutState, devices: Sequence[RolloutDevice], now: datetime) -> dict[str, datetime]:
    """Return since when who says nothing; a device that the broker knows no longer stays as it was."""
    names = {ring.name for ring in state.rings}
    there = {device.name for device in devices if device.is_there}
    since = {name: at for name, at in state.silent.items() if name not in there}
    away = [device.name for device in devices if device.ring in names and not device.is_there]
    return {**dict.fromkeys(away, now), **since}


def _check_rings(rings: Sequence[str], devices: Sequence[RolloutDevice]) -> None:
    there: dict[str, int] = {}
    for device in devices:
        there[device.ring] = there.get(device.ring, 0) + 1
    empty = [ring for ring in rings if ring not in there]
    if empty:
        known = ", ".join(f"{ring} ({count})" for ring, count in sorted(there.items())) or "no ring at all"
        raise DeployError(
            "request.ring",
            f"no device of {', '.join(empty)} is known at the broker, which knows {known}",
            hint="a device belongs to a ring by its settings (edge-deploy provision --ring), "
            "and is known once it has served a release",
        )
