"""A trial that nobody judges: the agent that had armed it was killed before it started the judge."""

from __future__ import annotations

from dataclasses import replace

from edge.device.device import Device
from edge.device.health import read_health
from edge.device.moment import this_moment
from edge.device.state import Phase, State
from edge.device.switch import switch_to
from edge.device.units import RUNTIME_UNIT, TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent.release import restart_runtime
from edge.runtime.agent.session import Session, lock
from edge.wire.ending import Nothing
from edge.wire.sending import LockRequest

__all__ = ["lock_or_take_up"]

_ROLLBACK_UNIT = "edge-rollback.service"
_AGE_S = 15.0  # a judge that was asked for a moment ago may not be there yet
_START_S = 30.0


def lock_or_take_up(session: Session, request: LockRequest) -> Nothing:
    """Answer a request for the lock; where a trial without a judge is in its way, give it one first.

    Without that it would last until the next boot: each push would be told to wait for a verdict that never comes.
    """
    try:
        return lock(session, request)
    except DeployError as error:
        if error.code == "lock.trial":
            _take_up(session, request)
        raise


def _take_up(session: Session, request: LockRequest) -> None:
    # With the lock held: whoever switches at this moment has it, and then nothing is orphaned.
    lock(session, replace(request, in_trial=True))
    try:
        state = session.device.state()
        if state.phase is Phase.TRIAL and state.target is not None and _is_orphaned(session, state):
            session.talk.go_on_alone()
            _finish(session, state.target)
    finally:
        session.close()


def _is_orphaned(session: Session, state: State) -> bool:
    moment = this_moment()
    is_fresh = state.boot_id == moment.boot_id and (moment.boottime_ns - state.started_boottime_ns) / 1e9 < _AGE_S
    units = (TRIAL_UNIT, _ROLLBACK_UNIT)
    return not is_fresh and all(session.units.state(unit).active in ("inactive", "failed") for unit in units)


def _finish(session: Session, release: str) -> None:
    _begin_again(session.device)
    switch_to(session.device, release)
    health = read_health(session.device.layout.health)
    if session.units.state(RUNTIME_UNIT).active != "active" or health is None or health.release != release:
        restart_runtime(session)
    session.units.start(TRIAL_UNIT, wait=False, timeout_s=_START_S)


def _begin_again(device: Device) -> None:
    # The time in which nobody looked does not count against the release.
    moment = this_moment()
    with device.locked():
        state = device.state()
        if state.phase is Phase.TRIAL:
            begun = replace(state, boot_id=moment.boot_id, started_at=moment.at, started_boottime_ns=moment.boottime_ns)
            device.write_state(begun)
