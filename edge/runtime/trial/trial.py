"""`edge-runtime trial`: watches and judges a release, then commits it or says why not. Standard library only."""

from __future__ import annotations

import enum
import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from edge.bundle.manifest import HealthLimits, Manifest, Role, decode_manifest
from edge.device.device import Device
from edge.device.facts import this_moment
from edge.device.health import Health, read_health
from edge.device.state import Phase, State
from edge.device.switch import commit, refuse
from edge.device.units import LACKING, LACKING_STATUS, RUNTIME_UNIT, Units
from edge.errors import DeployError
from edge.reading import available_bytes
from edge.reports import Moment, UnitState
from edge.runtime.build.request import write_progress

__all__ = [
    "REFUSED",
    "Baseline",
    "Observation",
    "Trial",
    "TrialVerdict",
    "asked_of",
    "baseline_from_state",
    "judge_trial",
    "record",
    "recorded_failure",
    "run_trial",
]

_WINDOW_S = 10.0  # rates are measured over so long: short enough to see a break, long enough to count frames
_STALE_S = 5.0  # the health file is written every second
# What no camera and no engine does. The release before says it of itself, and shall not keep its successor out by it.
_MOST_FPS = 10_000.0
_LEAST_INFER_MS = 0.01
_DEAD_RESULTS = ("watchdog", "oom-kill", "core-dump", "signal", "exit-code", "timeout", "start-limit-hit", "resources")
_log = logging.getLogger(__name__)
REFUSED = 8
"""Exit code: the release is refused; systemd then starts the way back."""

_EVERY_S = 1.0
_HOLDING = "holding"
_NUMBER = re.compile(r"(?<= )[0-9.]+(?= )")  # of a reason that is told once, also where it is another each second
_MOST_TOLD = 5  # of what is not well at once
_TOLD_AGAIN = 30  # looks, after which `status` gets the figures of now
_KEPT_S = 30.0  # beyond the time that all has to hold: the window of a rate, and some


class TrialVerdict(str, enum.Enum):
    """Decision on a trial: wait, commit or go back."""

    WAIT = "wait"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """State before the switch; what did not work then is not blamed on the next release.

    Attributes:
        rates: inferred frames per second of each stream that gave any.
        infer_p95_ms: of the last frames; None: there were none.
        mqtt_connected: None: there was no broker in the pipeline.
        mqtt_per_s: messages acknowledged per second.
        available_bytes: memory that was free; None: not known.
        doubt: why nothing of the release before is counted; None: it is.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    infer_p95_ms: float | None = None
    mqtt_connected: bool | None = None
    mqtt_per_s: float = 0.0
    available_bytes: int | None = None
    doubt: str | None = None


def baseline_from_state(values: Mapping[str, Any]) -> Baseline:
    """Return what `edge.device.health` has measured; what is not there, or cannot be, was not known."""
    if not values:
        return Baseline(doubt="none ran until the switch")
    rates = {str(name): float(rate) for name, rate in dict(values.get("streams") or {}).items()}
    doubt = _doubt(rates, values.get("infer_p95_ms"))
    if doubt is not None:
        return Baseline(available_bytes=values.get("available_bytes"), doubt=doubt)  # the memory is measured by us
    return Baseline(
        rates={name: rate for name, rate in rates.items() if rate > 0},
        infer_p95_ms=values.get("infer_p95_ms"),
        mqtt_connected=values.get("mqtt_connected"),
        mqtt_per_s=float(values.get("mqtt_per_s") or 0.0),
        available_bytes=values.get("available_bytes"),
    )


def _doubt(rates: Mapping[str, float], infer_p95_ms: float | None) -> str | None:
    fastest = max(rates.values(), default=0.0)
    if fastest > _MOST_FPS:
        return f"the release before said what cannot be: {fastest:g} frames per second of a stream"
    if infer_p95_ms is not None and infer_p95_ms < _LEAST_INFER_MS:
        return f"the release before said what cannot be: inference in {infer_p95_ms:g} ms"
    return None


def asked_of(baseline: Baseline, manifest: Manifest, before: Manifest | None) -> Baseline:
    """Return of `baseline` what a release has to keep up: not what it changes on purpose.

    A stream gives its `max_fps` at most. Inference time, and how often messages come, follow from model and pipeline:
    they are compared only where both are those of the release `before`.
    """
    rates = {name: min(rate, manifest.max_fps.get(name, rate)) for name, rate in baseline.rates.items()}
    if before is not None and _work(before) == _work(manifest):
        return replace(baseline, rates=rates)
    return replace(baseline, rates=rates, infer_p95_ms=None, mqtt_per_s=0.0)


def _work(manifest: Manifest) -> tuple[object, ...]:
    return manifest.engine, manifest.files_of(Role.MODEL), manifest.files_of(Role.PIPELINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at the service.

    Attributes:
        at_ns: CLOCK_BOOTTIME.
        health: the health file; None: there is none, or it is of another run or release.
        available_bytes: free memory; None: not known.
    """

    at_ns: int
    unit: UnitState
    health: Health | None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, why, and what is wrong but is no fault of this release."""

    verdict: TrialVerdict
    reason: str
    warnings: tuple[str, ...] = field(default=())


def judge_trial(
    baseline: Baseline, limits: HealthLimits, seen: Sequence[Observation], *, release: str, started_ns: int
) -> Judgement:
    """Return the verdict as of the last observation.

    A hard fault ends the trial at once. Everything else has to hold for `limits.hold_s` without interruption, before
    `limits.deadline_s` after `started_ns` (CLOCK_BOOTTIME of the switch). What did not work before is only mentioned.

    Args:
        seen: all observations since the trial began, in order, at least one.
        release: that is on trial; a health file of another one says nothing.
    """
    usable = [_without_strangers(one, release) for one in seen]
    warnings = tuple(_warnings(baseline, limits, usable[-1]))
    fault = _hard_fault(baseline, limits, usable)
    if fault is not None:
        return Judgement(verdict=TrialVerdict.BAD, reason=fault, warnings=warnings)
    since_ns, problem = _well_since(baseline, limits, usable)
    now_ns = usable[-1].at_ns
    held_s = 0.0 if since_ns is None else (now_ns - since_ns) / 1e9
    if since_ns is not None and held_s >= limits.hold_s:
        return Judgement(verdict=TrialVerdict.GOOD, reason=f"all well for {held_s:.0f} s", warnings=warnings)
    if (now_ns - started_ns) / 1e9 >= limits.deadline_s:
        reason = f"not well for {limits.hold_s:g} s within {limits.deadline_s:g} s: {problem or 'too late'}"
        return Judgement(verdict=TrialVerdict.BAD, reason=reason, warnings=warnings)
    return Judgement(verdict=TrialVerdict.WAIT, reason=problem or _HOLDING, warnings=warnings)


def _without_strangers(one: Observation, release: str) -> Observation:
    # The file of the release before stays until the new one writes its own.
    health = one.health
    is_its_own = (
        health is not None
        and health.release == release
        and (not one.unit.invocation or health.invocation == one.unit.invocation)
        and one.at_ns - health.at_boottime_ns < _STALE_S * 1e9
    )
    return one if is_its_own else replace(one, health=None)


def _hard_fault(baseline: Baseline, limits: HealthLimits, seen: Sequence[Observation]) -> str | None:
    last = seen[-1]
    runs = [one.unit.invocation for one in seen if one.unit.invocation]
    if last.unit.exit_status == LACKING_STATUS and (last.unit.active == "failed" or last.unit.sub == "auto-restart"):
        return f"{LACKING}{_said(last)}"
    if last.unit.active == "failed":
        return f"the service has failed: {last.unit.result}, exit status {last.unit.exit_status}{_said(last)}"
    if last.unit.sub == "auto-restart" or len(set(runs)) > 1 or last.unit.restarts > seen[0].unit.restarts:
        why = last.unit.result if last.unit.result in _DEAD_RESULTS else "it ended"
        return f"the service was started again: {why}, exit status {last.unit.exit_status}{_said(last)}"
    was_enough = baseline.available_bytes is None or baseline.available_bytes >= limits.min_available_bytes
    if was_enough and last.available_bytes is not None and last.available_bytes < limits.min_available_bytes:
        return f"{last.available_bytes} bytes of memory are left, at least {limits.min_available_bytes} expected"
    return None


def _said(last: Observation) -> str:
    return "" if last.unit.failure is None else f": {last.unit.failure}"


def _well_since(baseline: Baseline, limits: HealthLimits, seen: Sequence[Observation]) -> tuple[int | None, str | None]:
    """Return since when all is well without interruption (None: it is not), and what is missing if it is not."""
    since_ns: int | None = None
    problem: str | None = "no observation"
    for count in range(1, len(seen) + 1):
        problem = _problem(baseline, limits, seen[:count])
        if problem is not None:
            since_ns = None
        elif since_ns is None:
            since_ns = seen[count - 1].at_ns
    return since_ns, problem


def _problem(baseline: Baseline, limits: HealthLimits, seen: Sequence[Observation]) -> str | None:
    """Return what is not well as of the last of `seen`, judged over the window before it."""
    last = seen[-1]
    if last.unit.active != "active":
        return f"the service is {last.unit.active}"
    if last.health is None or not last.health.is_ready:
        return "the service does not say how it stands"
    first = _first_of_window(seen, min(_WINDOW_S, limits.hold_s))
    if first is None:
        return "not observed for long enough"
    found = list(_complaints(baseline, limits, first, last.health))
    more = [f"and {len(found) - _MOST_TOLD} more"] if len(found) > _MOST_TOLD else []
    return "; ".join(found[:_MOST_TOLD] + more) or None


def _first_of_window(seen: Sequence[Observation], window_s: float) -> Health | None:
    """Return the newest snapshot that is at least `window_s` old and unbroken since; None: there is none."""
    end_ns = seen[-1].at_ns
    for later, one in pairwise(reversed(seen)):
        if one.health is None:
            return None
        if (end_ns - one.at_ns) / 1e9 >= window_s and later.health is not None:
            return one.health
    return None


def _complaints(baseline: Baseline, limits: HealthLimits, first: Health, last: Health) -> Iterator[str]:
    yield from _mqtt_complaints(baseline, first, last)
    most_ms = limits.infer_p95_ms
    if most_ms is None and baseline.infer_p95_ms is not None:
        most_ms = baseline.infer_p95_ms * limits.max_slowdown
    if most_ms is not None and last.infer_p95_ms is not None and last.infer_p95_ms > most_ms:
        yield f"inference takes {last.infer_p95_ms:.1f} ms (p95), at most {most_ms:.1f} ms expected"
    if limits.age_p95_ms is not None and last.age_p95_ms is not None and last.age_p95_ms > limits.age_p95_ms:
        yield f"frames are {last.age_p95_ms:.1f} ms old (p95), at most {limits.age_p95_ms:.1f} ms expected"
    elapsed_s = (last.at_boottime_ns - first.at_boottime_ns) / 1e9
    yield from _stream_complaints(baseline, limits, first, last, elapsed_s)


def _stream_complaints(
    baseline: Baseline, limits: HealthLimits, first: Health, last: Health, elapsed_s: float
) -> Iterator[str]:
    hint = " (if it is to give fewer: state its max_fps)"
    for name, stream in sorted(last.streams.items()):
        count = stream.inferred - (first.streams[name].inferred if name in first.streams else 0)
        wanted = baseline.rates.get(name, 0.0) * limits.min_rate_share * elapsed_s
        if stream.state == "ended":  # a file that was read to its end
            continue
        if name in baseline.rates and stream.inferred == 0:
            yield f"stream {name}: no frame yet"
        elif count + 1 < wanted:  # one frame may fall to either side of the window
            found = f"{count / elapsed_s:.2f} frames per second, {wanted / elapsed_s:.2f} expected"
            yield f"stream {name}: {found}{hint}"
            hint = ""


def _mqtt_complaints(baseline: Baseline, first: Health, last: Health) -> Iterator[str]:
    if not baseline.mqtt_connected or last.mqtt_connected is None:
        return
    if not last.mqtt_connected:
        yield "the broker is not connected, and was before"
    elif last.mqtt_acknowledged == 0:
        yield "the broker has acknowledged nothing"
    elif baseline.mqtt_per_s * _WINDOW_S >= 2 and last.mqtt_acknowledged == first.mqtt_acknowledged:
        yield "the broker acknowledges nothing any more"


def _warnings(baseline: Baseline, limits: HealthLimits, last: Observation) -> Iterator[str]:
    if baseline.doubt is not None:
        yield f"nothing is compared with a release before: {baseline.doubt}"
    health = last.health
    if health is None:
        return
    for name in sorted(set(baseline.rates) - set(health.streams)):
        yield f"stream {name}: is not part of this release"
    for name, stream in sorted(health.streams.items()):
        if name not in baseline.rates and stream.inferred == 0:
            yield f"stream {name}: no frames ({stream.state}); it is new or gave none before"
    if health.mqtt_connected is False and not baseline.mqtt_connected:
        yield "the broker is not connected; it is new or was not connected before"
    before, now = baseline.available_bytes, last.available_bytes
    if before is not None and now is not None and max(before, now) < limits.min_available_bytes:
        yield f"{now} bytes of memory are left, {before} were before"


def record(device: Device, what: str, result: str, *, release: str | None, moment: Moment) -> None:
    """Write that the device itself did `what`; a log that cannot be written is no reason to stop a way back."""
    try:
        device.audit.write(at=moment.at, who="device", origin="local", what=what, result=result, release=release)
    except DeployError as error:
        _log.warning("audit log cannot be written what=%s result=%s reason=%s", what, result, error)


@contextmanager
def recorded_failure(device: Device, what: str, *, release: str | None, moment: Moment) -> Iterator[None]:
    """Write down a DeployError that ends the block, and pass it on."""
    try:
        yield
    except DeployError as error:
        record(device, what, f"{error.code}: {error.problem}", release=release, moment=moment)
        raise


def _observe(device: Device, units: Units) -> Observation:
    try:
        unit = units.state(RUNTIME_UNIT)
    except DeployError as error:  # systemd is busy, or restarts itself: that is no fault of the release
        _log.warning("systemd unit state cannot be read reason=%s", error)
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


def run_trial(device: Device, units: Units, trial: Trial | None = None) -> int:
    """Judge the release on trial until there is a verdict; return the exit code, 0 or `REFUSED`.

    Returns at once with 0 when nothing is on trial.

    Raises `DeployError` `device.*` if the state cannot be read or written.
    """
    trial = trial or Trial()
    state = device.state()
    if state.phase is not Phase.TRIAL or state.target is None:
        _log.info("nothing is on trial")
        return 0
    if state.reason is not None:
        _log.error("trial refused before release=%s reason=%s", state.target, state.reason)
        return REFUSED
    try:
        manifest = decode_manifest(device.releases.manifest(state.target))
    except DeployError as error:
        return _refuse(device, state.target, f"its manifest cannot be read: {error.problem}", this_moment())
    try:
        return _watch(device, units, trial, state, manifest)
    finally:
        write_progress(device.layout.trial_progress, "")


def _watch(device: Device, units: Units, trial: Trial, state: State, manifest: Manifest) -> int:
    baseline = asked_of(baseline_from_state(state.baseline), manifest, _manifest_before(device, state))
    limits, release = manifest.health, state.target or ""
    seen: list[Observation] = []
    said: Judgement | None = None
    looks = itertools.count()
    while True:
        seen = _kept([*seen, trial.observe(device, units)], limits)
        judgement = judge_trial(baseline, limits, seen, release=release, started_ns=state.started_boottime_ns)
        said = _say(device, release, judgement, said, is_due=next(looks) % _TOLD_AGAIN == 0)
        if judgement.verdict is TrialVerdict.BAD:
            return _refuse(device, release, judgement.reason, this_moment())
        if judgement.verdict is TrialVerdict.GOOD:
            if _commit(device, moment := this_moment()):
                record(device, "trial", f"committed: {judgement.reason}", release=release, moment=moment)
                _log.warning("trial committed release=%s reason=%s", release, judgement.reason)
                return 0
            if (seen[-1].at_ns - state.started_boottime_ns) / 1e9 >= limits.deadline_s:
                return _refuse(device, release, f"nobody has confirmed it within {limits.deadline_s:g} s", moment)
        if device.state().target != release:  # a person went back by hand
            _log.warning("trial ended by another process release=%s", release)
            return 0
        trial.wait(_EVERY_S)


def _manifest_before(device: Device, state: State) -> Manifest | None:
    with suppress(DeployError):
        before = state.baseline.get("release") or state.fallback  # another one where the release that serves is tried
        return None if before is None else decode_manifest(device.releases.manifest(str(before)))
    return None


def _kept(seen: list[Observation], limits: HealthLimits) -> list[Observation]:
    """Return the first observation, which says what the service was then, and the latest ones."""
    oldest_ns = seen[-1].at_ns - (limits.hold_s + _KEPT_S) * 1e9
    return [one for index, one in enumerate(seen) if index == 0 or one.at_ns >= oldest_ns]


def _commit(device: Device, moment: Moment) -> bool:
    """Return false while a person has still to confirm."""
    try:
        commit(device, moment=moment)
    except DeployError as error:
        if error.code not in ("trial.unconfirmed", "request.not-armed"):  # the latter: ended by hand a moment ago
            raise
        return False
    return True


def _refuse(device: Device, release: str, reason: str, moment: Moment) -> int:
    _log.error("trial refused release=%s reason=%s", release, reason)
    refuse(device, reason)
    record(device, "trial", f"refused: {reason}", release=release, moment=moment)
    return REFUSED


def _say(device: Device, release: str, judgement: Judgement, before: Judgement | None, *, is_due: bool) -> Judgement:
    if before is None or judgement.warnings != before.warnings:
        for warning in judgement.warnings:
            _log.warning("trial warning release=%s what=%s", release, warning)
    is_new = before is None or _NUMBER.sub("", judgement.reason) != _NUMBER.sub("", before.reason)
    if is_new:
        _log.warning("trial release=%s verdict=%s reason=%s", release, judgement.verdict.value, judgement.reason)
    if is_new or is_due:
        is_waiting = judgement.verdict is TrialVerdict.WAIT and judgement.reason != _HOLDING
        write_progress(device.layout.trial_progress, judgement.reason if is_waiting else "")
    return judgement
