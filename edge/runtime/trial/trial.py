"""`edge-runtime trial`: watches a release on trial, then commits it or says why not. Standard library only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from edge.bundle.manifest import HealthLimits, decode_manifest
from edge.device.baseline import available_bytes
from edge.device.device import Device
from edge.device.health import read_health
from edge.device.moment import Moment, this_moment
from edge.device.state import Phase, State
from edge.device.switch import commit, refuse
from edge.device.units import RUNTIME_UNIT, Units, UnitState
from edge.errors import DeployError
from edge.runtime.trial.audit_entries import record
from edge.runtime.trial.judge import Judgement, Observation, TrialVerdict, baseline_from_state, judge_trial

__all__ = ["REFUSED", "Trial", "run_trial"]

REFUSED = 8
"""Exit code: the release is refused; systemd then starts the way back."""

_EVERY_S = 1.0
_KEPT_S = 30.0  # beyond the time that all has to hold: the window of a rate, and some

_log = logging.getLogger(__name__)


def _observe(device: Device, units: Units) -> Observation:
    try:
        unit = units.state(RUNTIME_UNIT)
    except DeployError as error:  # systemd is busy, or restarts itself: that is no fault of the release
        _log.warning("unit cannot be looked at reason=%s", error)
        unit = UnitState(active="unknown")
    return Observation(
        at_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        unit=unit,
        health=read_health(device.layout.health),
        available_bytes=available_bytes(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a trial looks at the world; the defaults are a device's, a test brings its own time."""

    observe: Callable[[Device, Units], Observation] = _observe
    wait: Callable[[float], object] = time.sleep
    moment: Callable[[], Moment] = this_moment


def run_trial(device: Device, units: Units, trial: Trial | None = None) -> int:
    """Judge the release on trial until there is a verdict; return the exit code, 0 or `REFUSED`.

    Returns at once with 0 when nothing is on trial.

    Raises:
        DeployError: `device.*` if the state cannot be read or written.
    """
    trial = trial or Trial()
    state = device.state()
    if state.phase is not Phase.TRIAL or state.target is None:
        _log.info("nothing is on trial")
        return 0
    if state.reason is not None:
        _log.error("refused already release=%s reason=%s", state.target, state.reason)
        return REFUSED
    try:
        limits = decode_manifest(device.releases.manifest(state.target)).health
    except DeployError as error:
        return _refuse(device, state.target, f"its manifest cannot be read: {error.problem}", trial.moment())
    return _watch(device, units, trial, state, limits)


def _watch(device: Device, units: Units, trial: Trial, state: State, limits: HealthLimits) -> int:
    baseline, release = baseline_from_state(state.baseline), state.target or ""
    seen: list[Observation] = []
    said: Judgement | None = None
    while True:
        seen = _kept([*seen, trial.observe(device, units)], limits)
        judgement = judge_trial(baseline, limits, seen, release=release, started_ns=state.started_boottime_ns)
        said = _say(release, judgement, said)
        if judgement.verdict is TrialVerdict.BAD:
            return _refuse(device, release, judgement.reason, trial.moment())
        if judgement.verdict is TrialVerdict.GOOD:
            if _commit(device, moment := trial.moment()):
                record(device, "trial", f"committed: {judgement.reason}", release=release, moment=moment)
                _log.warning("committed release=%s reason=%s", release, judgement.reason)
                return 0
            if (seen[-1].at_ns - state.started_boottime_ns) / 1e9 >= limits.deadline_s:
                return _refuse(device, release, f"nobody has confirmed it within {limits.deadline_s:g} s", moment)
        if device.state().target != release:  # somebody went back by hand
            _log.warning("the trial was ended by somebody else release=%s", release)
            return 0
        trial.wait(_EVERY_S)


def _kept(seen: list[Observation], limits: HealthLimits) -> list[Observation]:
    """Return the first observation, which says what the service was then, and the latest ones."""
    oldest_ns = seen[-1].at_ns - (limits.hold_s + _KEPT_S) * 1e9
    return [one for index, one in enumerate(seen) if index == 0 or one.at_ns >= oldest_ns]


def _commit(device: Device, moment: Moment) -> bool:
    """Commit; return false while a person has still to confirm."""
    try:
        commit(device, moment=moment)
    except DeployError as error:
        if error.code not in ("trial.unconfirmed", "request.not-armed"):  # the latter: ended by hand a moment ago
            raise
        return False
    return True


def _refuse(device: Device, release: str, reason: str, moment: Moment) -> int:
    _log.error("refused release=%s reason=%s", release, reason)
    refuse(device, reason)
    record(device, "trial", f"refused: {reason}", release=release, moment=moment)
    return REFUSED


def _say(release: str, judgement: Judgement, before: Judgement | None) -> Judgement:
    """Log what is news; return what was said."""
    if before is None or judgement.warnings != before.warnings:
        for warning in judgement.warnings:
            _log.warning("noted release=%s what=%s", release, warning)
    if before is None or judgement.reason.split(":")[0] != before.reason.split(":")[0]:
        _log.warning("trial release=%s verdict=%s reason=%s", release, judgement.verdict.value, judgement.reason)
    return judgement
