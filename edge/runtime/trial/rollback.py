"""`edge-runtime rollback`: the one way back, whatever has failed; and `recover --boot`, before anything serves.

It moves the switch, or asks for the engine to be built anew, and leaves starting things to the unit that runs it.
Standard library only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from edge.device.device import Device
from edge.device.facts import this_moment
from edge.device.recovery import Recovery, recover
from edge.device.releases import check_release
from edge.device.state import Phase, State
from edge.device.switch import arm, count_attempt, roll_back, switch_to
from edge.device.units import LACKING, LACKING_STATUS, RUNTIME_UNIT, TRIAL_UNIT, Units
from edge.errors import DeployError, EngineError
from edge.reports import Moment, UnitState
from edge.runtime.build.request import ask, read_result
from edge.runtime.software.binding import is_this
from edge.runtime.trial.soundness import is_sound, problem_of_release, put_aside, require_engine, require_files
from edge.runtime.trial.trial import REFUSED, record, recorded_failure
from edge.runtime.trial.trust import is_known, problem_of_signature, require_known, require_trusted
from edge.version import __version__

__all__ = ["WayBack", "go_back", "go_to", "is_needed", "recover_at_boot"]

_log = logging.getLogger(__name__)
_EX_CONFIG = 78
_EX_ENGINE = EngineError.exit_code
_REBUILDS = 2  # in a row; what is still not well then is better left
_GUESSED = "guessed"  # in the evidence: it may as well be its configuration that the service refuses
_REBUILT = ("device.engine.damaged", "device.engine.changed", "device.engine.missing", "device.software.missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """Result of a rollback: `release` is current now (None: nothing serves)."""

    release: str | None
    note: str


def is_needed(device: Device, units: Units) -> bool:
    """Return whether the runtime or a trial has failed; where that cannot be known, that one has.

    systemd starts the way back also when a runtime had to be killed on its way down, say because the release before
    hangs while a push restarts it. The one that has taken its place is not to blame.
    """
    try:
        return _has_failed(device.state(), units)
    except Exception as error:  # even a defect of ours must not stand before the way back, which will tell it
        _log.warning("failed units cannot be read, a failure is assumed reason=%s", error)
        return True


def go_back(device: Device, units: Units, reason: str, *, moment: Moment | None = None) -> WayBack:
    """Do what a failure of the runtime or of a trial asks for; do nothing where neither has failed.

    A release whose engine no longer fits this device is not left: another system needs another engine of the same
    release, and of an older one too. What is damaged is put aside, so that a push or a build makes it anew.

    Raises `DeployError` `person.failed`, when nothing is left that could be done alone; `device.*`.
    """
    moment = moment or this_moment()
    state, current = device.state(), device.releases.current()
    if not _has_failed(state, units):
        return WayBack(release=current, note="nothing has failed")
    with recorded_failure(device, "rollback", release=current, moment=moment):
        way = _way_back(device, units, state, current, reason, moment)
    record(device, "rollback", f"{way.note}; {way.release or 'nothing'} is current", release=current, moment=moment)
    return way


def _way_back(device: Device, units: Units, state: State, current: str | None, reason: str, moment: Moment) -> WayBack:
    problem = None
    if current is not None:
        problem = problem_of_signature(device, current) or problem_of_release(device, current)
        problem = problem or _outdated(device, units, current)
    if current is not None and problem is not None:
        _log.error("release cannot serve release=%s code=%s problem=%s", current, problem.code, problem.problem)
        put_aside(device, current, problem)
        if _may_rebuild(device, state, current, problem):
            count_attempt(device, f"{reason}: {problem.problem}", moment=moment)
            ask(device, current)
            return WayBack(release=current, note=f"asked for a new engine: {problem.problem}")
    why = state.reason or _why(units, reason, problem)
    release = roll_back(
        device,
        why,
        moment=moment,
        is_valid=lambda release: is_sound(device, release) and is_known(device, release),
        check_trust=lambda release: require_trusted(device, release),
    )
    done = "went back" if release != current else "tries again"
    return WayBack(release=release, note=f"{done}: {why}")


def go_to(device: Device, release: str) -> WayBack:
    """Put a release that is kept on trial, because a person asks for it.
    Raises `DeployError` `request.release`, `request.rollback` if it is not kept or cannot serve; `lock.trial`;
    `verify.signature.*` if its signer does not count today.
    """
    check_release(release)
    problem = problem_of_release(device, release)
    if problem is not None:
        kept = ", ".join(device.releases.names()) or "none"
        raise DeployError(
            "request.rollback", f"release {release} cannot serve: {problem.problem}", hint=f"kept are: {kept}"
        )
    require_trusted(device, release)
    moment = this_moment()
    with recorded_failure(device, "rollback", release=release, moment=moment):
        arm(device, release, moment=moment, by_force=True)
        switch_to(device, release)
    record(device, "rollback", "on trial, asked for on the device", release=release, moment=moment)
    return WayBack(release=release, note="on trial: restart edge-runtime, then start edge-trial")


def _outdated(device: Device, units: Units, current: str) -> DeployError | None:
    """Return a problem if the service cannot use its engine: it alone can see that.

    What an engine is built from is worked out by the software, which may have been replaced; and a plan with the right
    digest may still be one that a library or a device will not load, or that fails when it runs.
    """
    record, _ = require_engine(device, current)
    try:
        status = units.state(RUNTIME_UNIT).exit_status
    except DeployError:
        return None
    if status == _EX_ENGINE:
        return DeployError("device.engine.damaged", f"the service cannot run its engine {record.inputs.key[:12]}")
    # Of the engine of other software only that one can say what it no longer fits, and it says no more than this.
    if status != _EX_CONFIG or (record.software == __version__ and is_this(device, current)):
        return None
    return DeployError(
        "device.engine.changed",
        f"the engine was built by edge-deploy {record.software}",
        evidence={_GUESSED: not is_this(device, current)},
    )


def _why(units: Units, reason: str, problem: DeployError | None) -> str:
    """Return what systemd knows: without it, a release that ends before its trial begins would fail for no reason."""
    if problem is not None:
        return f"{reason}: {problem.problem}"
    try:
        unit = units.state(RUNTIME_UNIT)
    except DeployError as error:
        return f"{reason}: {error.problem}"
    said = "" if unit.failure is None else f": {unit.failure}"
    if unit.exit_status == LACKING_STATUS:
        return f"{LACKING}{said}"
    return f"{reason}: {unit.active}, {unit.result}, exit status {unit.exit_status}{said}"


def _has_failed(state: State, units: Units) -> bool:
    if state.phase is Phase.TRIAL and state.reason is not None:
        return True
    try:
        return units.state(RUNTIME_UNIT).has_failed or (
            state.phase is Phase.TRIAL and _has_died(units.state(TRIAL_UNIT))
        )
    except DeployError as error:  # we were started for a reason; one attempt too many is counted, not lost
        _log.warning("systemd unit state cannot be read reason=%s", error)
        return True


def _has_died(trial: UnitState) -> bool:
    """Return whether a trial ended without a verdict; one that refused a release has left its reason with that one."""
    return trial.active == "failed" and trial.exit_status != REFUSED


def _may_rebuild(device: Device, state: State, current: str, problem: DeployError) -> bool:
    """Return whether a new engine may help: not on trial, where the fallback is at hand, and not again and again."""
    most = 1 if problem.evidence.get(_GUESSED) else _REBUILDS
    if problem.code not in _REBUILT or state.phase is not Phase.IDLE or state.attempts_this_boot >= most:
        return False
    result = read_result(device)
    return result is None or result.release != current or result.problem is None


def recover_at_boot(device: Device, *, moment: Moment | None = None) -> Recovery:
    """Bring switch and state together, looking at every byte that is computed with, and at its signature.

    A proven release whose engine is damaged stays current: at its start the engine is found out and built anew, which
    is better than an older release. So does one whose key was revoked since; but none of that kind is chosen instead.

    Raises `DeployError` only when no valid release could be made current.
    """
    kept = _proven(device)

    def is_valid(release: str) -> bool:
        if release != kept:
            return is_sound(device, release) and is_known(device, release)
        try:
            require_files(device, release)
        except DeployError as problem:
            _log.error("release is damaged release=%s problem=%s", release, problem)
            return False
        return is_known(device, release)

    moment, before = moment or this_moment(), _as_found(device)
    with recorded_failure(device, "recover", release=device.releases.current(), moment=moment):
        recovery = recover(
            device, moment=moment, is_valid=is_valid, check_trust=lambda release: require_trusted(device, release)
        )
    if recovery.problem is not None:
        _log.error("recovery incomplete problem=%s", recovery.problem)
        record(device, "recover", f"incomplete: {recovery.problem}", release=recovery.release, moment=moment)
    elif _as_found(device) != before:  # a boot that finds all in order leaves no line: each is a write to the flash
        record(device, "recover", recovery.note, release=recovery.release, moment=moment)
    if recovery.release is not None and (doubt := _doubt_of(device, recovery.release)) is not None:
        _log.error("release serves and is not trusted release=%s problem=%s", recovery.release, doubt)
        record(device, "recover", f"serves all the same: {doubt}", release=recovery.release, moment=moment)
    return recovery


def _doubt_of(device: Device, release: str) -> str | None:
    try:
        doubt = require_known(device, release).withdrawn
    except DeployError as error:
        doubt = error
    return None if doubt is None else f"{doubt.code}: {doubt.problem}"


def _as_found(device: Device) -> tuple[str | None, State | None]:
    try:
        return device.releases.current(), device.state()
    except DeployError:
        return device.releases.current(), None


def _proven(device: Device) -> str | None:
    try:
        return device.releases.current() if device.state().phase is Phase.IDLE else None
    except DeployError:
        return None
