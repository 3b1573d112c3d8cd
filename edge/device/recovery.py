"""Recovery at boot, before anything serves: the remains of a power cut become a known state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edge.device.device import Device
from edge.device.state import Phase, State, Verdict
from edge.device.switch import give_up, is_trusted, undo
from edge.errors import DeployError
from edge.reports import LastSwitch, Moment

__all__ = ["Recovery", "recover"]

_MAX_BOOTS = 1  # one cut is no evidence against a release; two in a row may be


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Result of `recover`: `release` is what may serve now (None: nothing), `note` is for the journal."""

    release: str | None
    is_on_trial: bool
    note: str
    problem: DeployError | None = None


def recover(
    device: Device,
    *,
    moment: Moment,
    is_valid: Callable[[str], bool] | None = None,
    check_trust: Callable[[str], object] = lambda release: None,
) -> Recovery:
    """Bring switch and state together; does nothing twice in one boot.

    Succeeds whenever `current` is valid: other faults are in the result, for the journal and the next push.
    `is_valid` says whether a release could serve; `check_trust` raises DeployError for one that may not be chosen in
    the place of what is current. Raises `DeployError` only when no valid release could be made current.
    """
    valid = _Valid(is_valid or device.releases.is_ready, check_trust)
    try:
        with device.locked():
            return _recover(device, moment, valid)
    except DeployError as problem:
        current = device.releases.current()
        if current is None or not valid(current):
            raise
        return Recovery(release=current, is_on_trial=False, note="serves, but could not be recovered", problem=problem)


class _Valid:
    def __init__(self, is_valid: Callable[[str], bool], check_trust: Callable[[str], object]) -> None:
        self._is_valid, self.check_trust = is_valid, check_trust

    def may_be_chosen(self, release: str) -> bool:
        return self(release) and is_trusted(self.check_trust, release)

    def __call__(self, release: str) -> bool:
        try:
            return self._is_valid(release)
        except DeployError:
            return False


def _recover(device: Device, moment: Moment, is_valid: _Valid) -> Recovery:
    # What a recovery that was killed has left is seen, and maybe not kept.
    device.durable.settle(device.layout.state)
    current = device.releases.current()
    try:
        state = device.state()
        is_lost = state == State() and current is not None
    except DeployError:
        state, is_lost = State(), True
    if is_lost:
        return _without_state(device, current, moment, is_valid)
    if state.phase is Phase.TRIAL:
        return _in_trial(device, state, current, moment, is_valid)
    if current is None or is_valid(current):
        return Recovery(release=current, is_on_trial=False, note=state.reason or "nothing to do")
    return _without_current(device, state, current, moment, is_valid)


def _in_trial(device: Device, state: State, current: str | None, moment: Moment, is_valid: _Valid) -> Recovery:
    if state.reason is not None:
        return _undone(device, state, state.reason, Verdict.BAD, moment, is_valid)
    if state.boot_id == moment.boot_id:
        return Recovery(release=current, is_on_trial=True, note="a trial is running")
    if current != state.target:
        return _never_switched(device, state, current, moment, is_valid)
    if not is_valid(current or ""):
        return _undone(device, state, "damaged after a power cut", Verdict.SUSPECT, moment, is_valid)
    if state.boots >= _MAX_BOOTS and state.fallback != state.target:
        return _undone(device, state, "power", Verdict.SUSPECT, moment, is_valid)
    device.write_state(_begun_again(replace(state, boots=state.boots + 1), moment))
    return Recovery(release=current, is_on_trial=True, note="the trial begins again after a power cut")


def _undone(device: Device, state: State, reason: str, verdict: Verdict, moment: Moment, is_valid: _Valid) -> Recovery:
    release = undo(
        device, state, reason, moment=moment, is_valid=is_valid, check_trust=is_valid.check_trust, verdict=verdict
    )
    return Recovery(release=release, is_on_trial=False, note=f"rolled back: {reason}")


def _never_switched(device: Device, state: State, current: str | None, moment: Moment, is_valid: _Valid) -> Recovery:
    # `current` is what it was before the push, and so is its fallback as far as anyone can tell: the release that was
    # armed is not it.
    last = LastSwitch(release=state.target, before=current, result="failed", reason="power", at=moment.at)
    idle = State(boot_id=moment.boot_id, started_at=moment.at, last=last)
    if current is not None and not is_valid(current):
        return _without_current(device, idle, current, moment, is_valid)
    device.write_state(idle)
    return Recovery(release=current, is_on_trial=False, note="the switch had not happened")


def _without_state(device: Device, current: str | None, moment: Moment, is_valid: _Valid) -> Recovery:
    if current is not None and is_valid(current):
        device.write_state(_trial_of(current, State(), moment))
        return Recovery(release=current, is_on_trial=True, note="the state was lost: current is on trial again")
    return _without_current(device, State(), current, moment, is_valid)


def _without_current(device: Device, state: State, current: str | None, moment: Moment, is_valid: _Valid) -> Recovery:
    if state.fallback not in (None, current) and is_valid.may_be_chosen(state.fallback or ""):
        return _undone(device, state, f"{current} is damaged", Verdict.SUSPECT, moment, is_valid)
    others = sorted(
        (device.releases.sequence(name), name) for name in device.releases.names() if is_valid.may_be_chosen(name)
    )
    if not others:
        raise give_up(device, state, f"{current or 'nothing'} is current, and no release is valid", moment)
    newest = others[-1][1]
    device.write_state(_trial_of(newest, state, moment))
    device.point(newest)
    return Recovery(release=newest, is_on_trial=True, note=f"{current} is damaged: the newest valid one is on trial")


def _trial_of(release: str, state: State, moment: Moment) -> State:
    return _begun_again(State(phase=Phase.TRIAL, target=release, fallback=release, last=state.last), moment)


def _begun_again(state: State, moment: Moment) -> State:
    return replace(state, boot_id=moment.boot_id, started_at=moment.at, started_boottime_ns=moment.boottime_ns)
