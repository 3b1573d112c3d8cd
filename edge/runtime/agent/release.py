"""From blobs to a serving release: staged, built while the old one serves, and switched under a trial.

Besides a push, a person confirms a trial, goes back, or clears up.
"""

from __future__ import annotations

import contextlib
import time

from edge.device.device import Device, collect
from edge.device.facts import read_settings, this_moment
from edge.device.health import measure_baseline
from edge.device.releases import check_release
from edge.device.state import Phase, forget_bad, raise_counters
from edge.device.switch import arm, roll_back, switch_to
from edge.device.switch import confirm as confirm_trial
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, TRIAL_UNIT
from edge.errors import DeployError
from edge.reports import Collected
from edge.runtime.agent.accept import counters_of, spent_by
from edge.runtime.agent.offer import is_built
from edge.runtime.agent.session import Session
from edge.runtime.build.handover import Taken, answered, take_over
from edge.runtime.build.request import BuildResult, ask, read_progress, read_result
from edge.runtime.software.binding import UNTRIED, problem_of_software
from edge.runtime.trial.soundness import why_better
from edge.runtime.trial.trust import Signed, require_trusted
from edge.wire.peer import Nothing
from edge.wire.release import (
    BuildAnswer,
    BuildRequest,
    ConfirmRequest,
    ReleaseAnswer,
    RollbackAnswer,
    RollbackRequest,
    StageRequest,
    SwitchAnswer,
    SwitchRequest,
)
from edge.wire.verbs import BUILD, GC, ROLLBACK, STAGE, SWITCH

__all__ = ["build", "confirm", "gc", "rollback", "stage", "start_trial", "switch"]

_BUILDERS_CODES = ("build", "smoke", "device", "verify")
_TRIAL_START_S = 30.0
_RESTART_S = 240.0
_SOFTWARE_S = 300.0


def stage(session: Session, request: StageRequest) -> ReleaseAnswer:
    """Make the release of its blobs, each of which is read once more; from here on no older one is taken."""
    offer, device = session.offered(STAGE, request.release), session.device
    here = [sha256 for sha256 in offer.lengths if device.store.has(sha256)]
    damaged = [sha256 for sha256 in here if not _is_whole(session, sha256)]
    for sha256 in damaged:
        device.store.quarantine(sha256)
    absent = device.store.missing(offer.lengths)
    if absent:
        raise DeployError(
            "transfer.absent" if not damaged else "transfer.damaged",
            f"{len(absent)} files of the release are not whole on the device, {len(damaged)} of them were damaged",
            hint="push again: what is missing is sent again",
            evidence={"damaged": damaged, "absent": sorted(absent)},
        )
    manifest = offer.manifest
    files = {one.path: one.sha256 for one in manifest.files}
    device.releases.stage(manifest.release, manifest=offer.content, signature=offer.signature, files=files)
    with device.locked():
        raise_counters(device.layout, device.durable, counters_of(manifest))
        if request.retry_bad:
            forget_bad(device.layout, device.durable, manifest.release)
    return ReleaseAnswer(release=manifest.release)


def _is_whole(session: Session, sha256: str) -> bool:
    return session.talk.while_doing(lambda: session.device.store.verify(sha256), phase="verify", total_s=None)


def build(session: Session, request: BuildRequest) -> BuildAnswer:
    """Build the engine in its own unit, and prove it on the golden frames; the old release serves meanwhile.

    With `detach` the device goes on alone from here: it builds, switches, and judges.
    """
    offer = session.offered(BUILD, request.release)
    if not request.detach:
        return _build(session, offer)
    session.talk.ok(BuildAnswer(detached=True))
    session.talk.go_on_alone()
    _build(session, offer)
    start_trial(session, offer.manifest.release, confirm=False, offer=offer)
    return BuildAnswer(detached=True)


def _build(session: Session, offer: Signed) -> BuildAnswer:
    device, release = session.device, offer.manifest.release
    take_over(device)  # what a push has asked for that was gone before its builder had ended
    key = device.releases.engine_key(release)
    result = read_result(device)
    is_usable = is_built(device, release) and why_better(device, release) is None
    if key is not None and is_usable and result is not None and (result.release, result.key) == (release, key):
        return BuildAnswer(key=key, seconds=0.0, skipped=True)
    before = answered(device)
    failure, taken = _run_builder(session, release)
    # A build that an earlier push had begun may still have been running, so that it was that one which we waited for.
    is_of_other = taken is Taken.OTHER and answered(device) != before
    if is_of_other or _is_no_answer(read_result(device), release):
        failure, _ = _run_builder(session, release)
    return _answer_of(read_result(device), release, failure)


def _run_builder(session: Session, release: str) -> tuple[DeployError | None, Taken]:
    """Ask for an engine, wait, and take over what was built; return why the unit failed, and what was found."""
    device = session.device
    settings = read_settings(device.layout.device_toml)
    deadline_s = float(settings.build_deadline_s + settings.golden_deadline_s)
    device.durable.remove(device.layout.build_result)
    ask(device, release)
    failure = None
    try:
        session.talk.while_doing(
            lambda: session.units.start(BUILD_UNIT, wait=True, timeout_s=deadline_s),
            phase="build",
            total_s=deadline_s,
            note=lambda: read_progress(device.layout.build_progress),
        )
    except DeployError as error:
        failure = error
    taken = session.talk.while_doing(lambda: take_over(device), phase="build", total_s=None)
    return failure, taken


def _is_no_answer(result: BuildResult | None, release: str) -> bool:
    """Return whether the way back has asked meanwhile, and has its answer; or edge-software was ending when this came.

    systemd does not begin what has not ended.
    """
    if result is None:
        return False
    problem = result.problem
    is_untried = problem is not None and problem.code == "build.software" and problem.evidence.get(UNTRIED) is True
    return result.release != release or is_untried


def _answer_of(result: BuildResult | None, release: str, failure: DeployError | None) -> BuildAnswer:
    if result is None or result.release != release:
        # It was killed, or never came so far as to write anything.
        raise DeployError(
            "build.died",
            f"{BUILD_UNIT} ended without a result" + ("" if failure is None else f": {failure.problem}"),
            hint="see edge-deploy logs; often memory ran out: stop other programs on the device, or add swap",
        )
    problem = result.problem
    if problem is not None:
        raise DeployError(
            problem.code if problem.code.partition(".")[0] in _BUILDERS_CODES else "build.failed",
            problem.problem,
            hint=problem.hint or "the old release serves; look at: journalctl -u edge-build",
            evidence=problem.evidence,
        )
    return BuildAnswer(
        key=result.key,
        seconds=result.seconds,
        golden=result.golden,
        engine=result.engine,
        precision=result.precision,
        report=result.report,
    )


def switch(session: Session, request: SwitchRequest) -> SwitchAnswer:
    """Arm, switch, restart, start the trial; from the arming on the device finishes this alone."""
    offer = session.offered(SWITCH, request.release)
    return start_trial(session, offer.manifest.release, confirm=request.confirm, offer=offer)


def start_trial(session: Session, release: str, *, confirm: bool, offer: Signed | None) -> SwitchAnswer:
    """Start the trial of a release that is complete and has its engine."""
    device = session.device
    before = device.releases.current()
    baseline = session.talk.while_doing(
        lambda: measure_baseline(device.layout.health, release=before), phase="baseline", total_s=5.0
    )
    session.talk.go_on_alone()
    arm(
        device,
        release,
        moment=this_moment(),
        confirm=confirm,
        baseline={**baseline, "release": before} if baseline else baseline,
        seen=None if offer is None else spent_by(offer),
        by_force=True,  # what came so far was let through on purpose
    )
    switch_to(device, release)
    problem = restart_runtime(session)
    # Also when the restart failed: the trial says so, and starts the way back.
    session.units.start(TRIAL_UNIT, wait=False, timeout_s=_TRIAL_START_S)
    unmeasured = None if baseline or before is None else f"not compared with {before}, which did not run until now"
    return SwitchAnswer(release=release, confirm=confirm, note="; ".join(filter(None, (problem, unmeasured))))


def restart_runtime(session: Session) -> str | None:
    """Restart the service; return what went wrong, because the state and not systemd says what follows."""

    def restart() -> None:
        session.units.reset_failed(RUNTIME_UNIT)
        session.units.restart(RUNTIME_UNIT)

    try:
        session.talk.while_doing(restart, phase="restart", total_s=_RESTART_S)
    except DeployError as error:
        return error.problem
    return None


def confirm(session: Session, request: ConfirmRequest) -> ReleaseAnswer:
    """Confirm `release`, or whichever is on trial; needs no lock, because a push confirms over another connection."""
    release = session.device.state().target if request.release is None else request.release
    if release is None:
        raise DeployError("request.not-armed", "no release is on trial", hint="edge-deploy status tells what serves")
    confirm_trial(session.device, release)
    return ReleaseAnswer(release=release)


def rollback(session: Session, request: RollbackRequest) -> RollbackAnswer:
    """Go back: at once to the release before, or, `to` one that is kept, by a trial like that of a push.

    The release before was proven, and it is what the device itself would go back to; any other one may have been
    proven long ago, with other cameras. Neither is gone to if its signer does not count today.
    """
    session.check_locked(ROLLBACK)
    device = session.device
    if request.to is not None:
        return _rollback_to(session, check_release(request.to))
    state = device.state()
    if state.phase is Phase.IDLE and state.fallback is None:
        raise DeployError(
            "request.rollback",
            "there is no release before this one on the device",
            hint="edge-deploy status lists what is kept; name one with --to",
        )
    if state.fallback is not None:
        _bring_software(session, state.fallback)  # where it cannot be had, that way back says so, and what comes of it
    session.talk.go_on_alone()
    landed_on = roll_back(
        device,
        f"asked for by {session.who}",
        moment=this_moment(),
        check_trust=lambda release: check_choice(device, release),
        by_person=True,
    )
    problem = restart_runtime(session)
    return RollbackAnswer(release=landed_on, on_trial=False, note=problem or "")


def _rollback_to(session: Session, release: str) -> RollbackAnswer:
    device = session.device
    if release not in device.releases.names():
        raise DeployError(
            "request.rollback",
            f"release {release} is not kept on the device",
            hint="kept are: " + (", ".join(device.releases.names()) or "none") + "; push the bundle again",
        )
    if device.releases.current() == release and device.state().phase is Phase.IDLE:
        return RollbackAnswer(release=release, on_trial=False, note="it serves already")
    check_choice(device, release)
    problem = _bring_software(session, release)
    if problem is not None:
        raise problem
    begun = start_trial(session, release, confirm=False, offer=None)
    return RollbackAnswer(release=release, on_trial=True, note=begun.note)


def _bring_software(session: Session, release: str) -> DeployError | None:
    """Have the software of a release installed, which may be missing right after a provision.

    Return why it is not here then; None: it is, or there is none.
    """
    problem = _software_problem(session.device, release)
    if problem is None or problem.code != "device.software.missing":
        return problem
    with contextlib.suppress(DeployError):  # without a request the builder ends; edge-software comes before it
        session.talk.while_doing(
            lambda: session.units.start(BUILD_UNIT, wait=True, timeout_s=_SOFTWARE_S),
            phase="build",
            total_s=_SOFTWARE_S,
        )
    return _software_problem(session.device, release)


def _software_problem(device: Device, release: str) -> DeployError | None:
    try:
        return problem_of_software(device, release)
    except DeployError as problem:
        return problem


def check_choice(device: Device, release: str) -> None:
    """Raise DeployError `verify.*` if a person may not go back to a release that is kept."""
    try:
        found = require_trusted(device, release)
    except DeployError as error:
        hint = "push a release that is signed by a key that counts today; what serves now goes on"
        raise DeployError(error.code, f"release {release}: {error.problem}", hint=hint) from None
    if found.is_downgrade and release not in (device.state().fallback, device.releases.current()):
        # It may only have been sent: by its name it would be put on trial without being counted as used.
        raise DeployError(
            "verify.downgrade.counter",
            f"release {release} is a permission to go back, which is used by a push",
            hint="push it, or another one if it was used",
        )


def gc(session: Session, request: Nothing) -> Collected:
    session.check_locked(GC)
    return session.talk.while_doing(lambda: collect(session.device, now_s=time.time()), phase="clean", total_s=None)
