"""The switch: armed before it moves, moved before the restart, and proven or undone after it.

arm ── switch_to ── (restart, trial) ──┬── commit
                                       └── refuse ── roll_back
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edge.device.device import Device
from edge.device.state import BadRelease, Counters, Phase, State, Verdict, forget_bad, mark_bad, raise_counters
from edge.device.units import LACKING
from edge.errors import DeployError
from edge.reports import LastSwitch, Moment
from edge.untrusted import cleaned

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_ATTEMPTS_PER_BOOT",
    "arm",
    "commit",
    "confirm",
    "refuse",
    "roll_back",
    "count_attempt",
    "is_trusted",
    "switch_to",
    "undo",
]

MAX_ATTEMPTS_PER_BOOT = 3
MAX_ATTEMPTS = 6
_MOST_REASON = 1000
_LOOP_NS = 3_600_000_000_000  # a release that ran for an hour was in no loop


def arm(
    device: Device,
    release: str,
    *,
    moment: Moment,
    confirm: bool = False,
    baseline: Mapping[str, object] | None = None,
    seen: Counters | None = None,
    by_force: bool = False,
) -> State:
    """Write down that `release` goes on trial, before the switch moves; `seen` is what its manifest raises.

    DeployError: `request.incomplete`, `lock.trial` while another one is on trial, `person.failed` unless `by_force`,
    `device.*`.
    """
    with device.locked():
        state = device.state()
        _check_may_arm(device, release, state, by_force=by_force)
        raise_counters(device.layout, device.durable, seen or Counters())
        current = device.releases.current()
        armed = State(
            phase=Phase.TRIAL,
            target=release,
            fallback=(state.fallback or release) if current == release else current,
            boot_id=moment.boot_id,
            started_at=moment.at,
            started_boottime_ns=moment.boottime_ns,
            confirm=confirm,
            baseline=dict(baseline or {}),
            last=state.last,
        )
        device.write_state(armed)
        return armed


def switch_to(device: Device, release: str) -> None:
    """DeployError `request.not-armed`."""
    with device.locked():
        _on_trial(device, release)
        device.point(release)


def confirm(device: Device, release: str) -> None:
    """Note that a person confirms the release on trial, once or again; DeployError `request.not-armed`."""
    with device.locked():
        state = _on_trial(device, release)
        if state.confirm:
            device.write_state(replace(state, confirm=False))
        else:
            device.durable.settle(device.layout.state)


def commit(device: Device, *, moment: Moment) -> State:
    """End the trial: the release is proven, what served before it becomes the fallback.

    DeployError: `request.not-armed`; `trial.unconfirmed` while a confirmation is awaited; `trial.refused`.
    """
    with device.locked():
        state = _on_trial(device, device.releases.current() or "")
        if state.confirm:
            raise DeployError("trial.unconfirmed", f"release {state.target}: it is not confirmed yet")
        if state.reason is not None:
            raise DeployError("trial.refused", f"release {state.target}: refused already: {state.reason}")
        release = state.target or ""
        forget_bad(device.layout, device.durable, release)
        last = _ending(state, "committed", None, moment)
        fallback = None if state.fallback == release else state.fallback
        proven = State(fallback=fallback, boot_id=moment.boot_id, started_at=moment.at, last=last)
        device.write_state(proven)
        return proven


def refuse(device: Device, reason: str) -> None:
    """Note why the trial is refused, once; `roll_back` acts on it. DeployError `request.not-armed`."""
    with device.locked():
        state = _on_trial(device, None)
        if state.reason is None:
            device.write_state(replace(state, reason=_short(reason)))
        else:
            device.durable.settle(device.layout.state)


def roll_back(
    device: Device,
    reason: str,
    *,
    moment: Moment,
    is_valid: Callable[[str], bool] | None = None,
    check_trust: Callable[[str], object] = lambda release: None,
    by_person: bool = False,
) -> str | None:
    """Go back to the fallback; with nothing to go back to, the current release may try again a few times.

    Return the release that is current now; None: nothing serves.

    A release on trial is marked bad and a proven one suspect, unless a person wants the way back (`by_person`), or the
    reason is that the device lacks something (`edge.device.units.LACKING`). The caller restarts the service.
    `is_valid` says whether a release could serve. `check_trust` raises DeployError for a release that may not be
    chosen; a person gets that error; a refused trial ends on what served before it all the same, because that chooses
    nothing.
    DeployError: `person.failed`, when nothing is left that could be done alone, as the state says then;
    `request.fallback`, when a person asks and there is nothing to go back to.
    """
    with device.locked():
        state = device.state()
        if by_person:
            state, verdict = _asked_for(device, state), None
            if state.fallback is not None:
                check_trust(state.fallback)
        else:
            state = _counted(device, state, reason, moment)
            verdict = Verdict.BAD if state.phase is Phase.TRIAL else Verdict.SUSPECT
        valid = is_valid or device.releases.is_ready
        return undo(device, state, reason, moment=moment, is_valid=valid, check_trust=check_trust, verdict=verdict)


def undo(
    device: Device,
    state: State,
    reason: str,
    *,
    moment: Moment,
    is_valid: Callable[[str], bool],
    verdict: Verdict | None,
    check_trust: Callable[[str], object] = lambda release: None,
) -> str | None:
    """Go back from what `state` says, see `roll_back`; call only with the state lock held.

    The verdict is written first: a power cut between two of these steps is followed by the same way back.
    """
    current = device.releases.current()
    leaving = state.target or current
    if state.reason is None:
        state = replace(state, reason=_short(reason))
        if state.phase is Phase.TRIAL:
            device.write_state(state)
    if state.phase is Phase.TRIAL and state.fallback is None:
        return _land(device, state, None, leaving, moment, verdict)
    fallback = state.fallback
    if (
        fallback is not None
        and fallback != leaving
        and is_valid(fallback)
        and (state.phase is Phase.TRIAL or is_trusted(check_trust, fallback))
    ):
        return _land(device, state, fallback, leaving, moment, verdict)
    if state.phase is Phase.IDLE and current is not None and is_valid(current):
        # Nothing better: it may try again, and the attempts are counted.
        device.write_state(replace(state, reason=None))
        return current
    raise give_up(device, state, f"{reason}; no other valid release to go back to", moment)


def is_trusted(check_trust: Callable[[str], object], release: str) -> bool:
    try:
        check_trust(release)
    except DeployError:
        return False
    return True


def give_up(device: Device, state: State, reason: str, moment: Moment) -> DeployError:
    """Write down that a person has to look, and return the error that says so."""
    reason = _short(reason)
    last = _ending(state, "failed", reason, moment)
    device.write_state(replace(state, phase=Phase.FAILED, target=None, reason=reason, started_at=moment.at, last=last))
    return _needs_person(reason)


def _land(
    device: Device, state: State, release: str | None, leaving: str | None, moment: Moment, verdict: Verdict | None
) -> str | None:
    reason = state.reason or ""
    # Marked before it is left: a proven release has no trial record that would tell recovery of the way back.
    is_at_fault = verdict is not None and not reason.startswith(LACKING)
    if verdict is not None and is_at_fault and leaving is not None and leaving != release:
        mark_bad(device.layout, device.durable, leaving, BadRelease(verdict=verdict, reason=reason, at=moment.at))
    device.point(release)
    device.write_state(
        State(
            # What was left was proven once, unless it was on trial or has failed now: then there is no way back to it.
            fallback=leaving if state.phase is Phase.IDLE and verdict is None else None,
            attempts=state.attempts,
            attempts_this_boot=state.attempts_this_boot,
            boot_id=moment.boot_id,
            started_at=moment.at,
            started_boottime_ns=moment.boottime_ns,
            last=_ending(state, "rolled-back", reason, moment, leaving),
        )
    )
    return release


def _asked_for(device: Device, state: State) -> State:
    if state.phase is Phase.FAILED:  # a person who asks gives the current release a new chance, too
        return replace(state, phase=Phase.IDLE, reason=None, attempts=0, attempts_this_boot=0)
    if state.phase is Phase.IDLE and state.fallback in (None, device.releases.current()):
        raise DeployError("request.fallback", "there is no release to go back to; push one")
    return state


def _counted(device: Device, state: State, reason: str, moment: Moment) -> State:
    if state.phase is Phase.FAILED:
        raise _needs_person(state.reason or reason)
    is_same_boot = state.boot_id == moment.boot_id
    is_loop = not is_same_boot or moment.boottime_ns - state.started_boottime_ns < _LOOP_NS
    before = state.attempts if is_loop else 0
    before_this_boot = state.attempts_this_boot if is_same_boot and is_loop else 0
    if before >= MAX_ATTEMPTS or before_this_boot >= MAX_ATTEMPTS_PER_BOOT:
        raise give_up(device, state, f"{reason}; {before} ways back were tried before", moment)
    return replace(
        state,
        attempts=before + 1,
        attempts_this_boot=before_this_boot + 1,
        boot_id=moment.boot_id,
        started_boottime_ns=moment.boottime_ns if state.phase is Phase.IDLE else state.started_boottime_ns,
    )


def _check_may_arm(device: Device, release: str, state: State, *, by_force: bool) -> None:
    if not device.releases.is_ready(release):
        raise DeployError(
            "request.incomplete", f"release {release}: its files or its engine are not here; push it again"
        )
    is_running = state.phase is Phase.TRIAL and device.releases.current() == state.target
    if is_running and state.target != release:  # one that was armed and never switched to stands in no way
        raise DeployError("lock.trial", f"release {state.target} is on trial; wait for its verdict")
    if state.phase is Phase.FAILED and not by_force:
        raise _needs_person(state.reason or "unknown")


def _on_trial(device: Device, release: str | None) -> State:
    state = device.state()
    if state.phase is not Phase.TRIAL or release not in (None, state.target):
        expected = f"release {release}" if release else "a release"
        raise DeployError("request.not-armed", f"expected {expected} on trial, got {state.target or 'none'}")
    return state


def _ending(state: State, result: str, reason: str | None, moment: Moment, leaving: str | None = None) -> LastSwitch:
    release = state.target or leaving
    return LastSwitch(release=release, before=state.fallback, result=result, reason=reason, at=moment.at)


def _short(reason: str) -> str:
    """Return a reason that the state can hold and the wire can carry."""
    return cleaned(reason)[:_MOST_REASON]


def _needs_person(reason: str) -> DeployError:
    return DeployError(
        "person.failed",
        f"the device stopped trying: {reason}",
        hint="push a release with --retry-bad, or rollback --to one that is kept",
    )


def count_attempt(device: Device, reason: str, *, moment: Moment) -> None:
    """Count a way back that does not move the switch, such as a new engine for the same release.

    DeployError `person.failed`, when there were too many; the state says so then.
    """
    with device.locked():
        device.write_state(_counted(device, device.state(), reason, moment))
