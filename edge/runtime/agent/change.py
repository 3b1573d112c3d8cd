"""What a person asks of a device besides a push: confirm a trial, go back, clear up."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict

from edge.device.device import Device
from edge.device.garbage import collect
from edge.device.moment import this_moment
from edge.device.releases import check_release
from edge.device.state import Phase
from edge.device.switch import confirm as confirm_trial
from edge.device.switch import roll_back
from edge.device.units import BUILD_UNIT
from edge.errors import DeployError
from edge.runtime.agent.release import restart_runtime, start_trial
from edge.runtime.agent.session import Session
from edge.runtime.software.binding import problem_of_software
from edge.runtime.trial.trust import require_trusted
from edge.wire.ending import Nothing
from edge.wire.release import CollectedAnswer, ConfirmRequest, ReleaseAnswer, RollbackAnswer, RollbackRequest
from edge.wire.verbs import GC, ROLLBACK

__all__ = ["confirm", "gc", "rollback"]

_SOFTWARE_S = 300.0


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
    landing = roll_back(
        device,
        f"asked for by {session.who}",
        moment=this_moment(),
        check_trust=lambda release: check_choice(device, release),
        by_person=True,
    )
    problem = restart_runtime(session)
    return RollbackAnswer(release=landing.release, on_trial=landing.is_on_trial, note=problem or "")


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
    with contextlib.suppress(DeployError):  # a builder of whom nothing is asked; edge-software comes before it
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


def gc(session: Session, request: Nothing) -> CollectedAnswer:
    """Remove what nobody needs any more."""
    session.check_locked(GC)
    collected = session.talk.while_doing(
        lambda: collect(session.device, now_s=time.time()), phase="clean", total_s=None
    )
    return CollectedAnswer(**asdict(collected))
