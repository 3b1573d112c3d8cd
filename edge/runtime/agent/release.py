"""From blobs to a serving release: staged, built while the old one serves, and switched under a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge.device.bad import forget_bad
from edge.device.baseline import measure_baseline
from edge.device.counters import raise_counters
from edge.device.device import Device
from edge.device.moment import this_moment
from edge.device.settings import read_settings
from edge.device.switch import arm, switch_to
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent.builds import built_of, is_built, read_build_result
from edge.runtime.agent.history import counters_of, spent_by
from edge.runtime.agent.session import Offer, Session
from edge.runtime.build.handover import Taken, answered, take_over
from edge.runtime.build.progress import read_progress
from edge.runtime.build.request import ask
from edge.runtime.software.said import UNTRIED
from edge.runtime.trial.soundness import why_better
from edge.wire.release import BuildAnswer, BuildRequest, ReleaseAnswer, StageRequest, SwitchAnswer, SwitchRequest
from edge.wire.verbs import BUILD, STAGE, SWITCH

__all__ = ["build", "stage", "start_trial", "switch"]

_TRIAL_START_S = 30.0
_RESTART_S = 240.0


def stage(session: Session, request: StageRequest) -> ReleaseAnswer:
    """Make the release of its blobs, each of which is read once more; from here on no older one is taken."""
    offer, device = session.offered(STAGE, request.release), session.device
    damaged = [sha256 for sha256 in offer.lengths if device.store.has(sha256) and not _is_whole(session, offer, sha256)]
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


def _is_whole(session: Session, offer: Offer, sha256: str) -> bool:
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


def _build(session: Session, offer: Offer) -> BuildAnswer:
    device, release = session.device, offer.manifest.release
    take_over(device)  # what a push has asked for that was gone before its builder had ended
    key = device.releases.engine_key(release)
    is_usable = is_built(device, release) and why_better(device, release) is None
    if key is not None and is_usable and _is_proven(session, release, key):
        return BuildAnswer(key=key, seconds=0.0, skipped=True)
    before = answered(device)
    failure, taken = _run_builder(session, release)
    # A build that an earlier push had begun may still have been running, so that it was that one which we waited for.
    is_of_other = taken is Taken.OTHER and answered(device) != before
    if is_of_other or _is_for_another(device, release) or _is_untried(device):
        failure, _ = _run_builder(session, release)
    return _result(session, release, failure)


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


def _is_for_another(device: Device, release: str) -> bool:
    """Return whether it was the way back that has asked meanwhile, and has its answer."""
    return read_build_result(device).get("release") not in (None, release)


def _is_untried(device: Device) -> bool:
    """Return whether edge-software was ending when this release came: systemd does not begin what has not ended."""
    result = read_build_result(device)
    evidence = result.get("evidence")
    return result.get("code") == "build.software" and isinstance(evidence, Mapping) and evidence.get(UNTRIED) is True


def _is_proven(session: Session, release: str, key: str) -> bool:
    result = read_build_result(session.device)
    return result.get("release") == release and result.get("key") == key and result.get("ok") is True


def _result(session: Session, release: str, failure: DeployError | None) -> BuildAnswer:
    result = read_build_result(session.device)
    if result.get("release") != release:
        # It was killed, or never came so far as to write anything.
        raise DeployError(
            "build.died",
            f"{BUILD_UNIT} ended without a result" + ("" if failure is None else f": {failure.problem}"),
            hint="see edge-deploy logs; often memory ran out: stop other programs on the device, or add swap",
        )
    if result.get("ok") is not True:
        raise DeployError(
            _code_of(result),
            str(result.get("problem", "the build failed")),
            hint=str(result["hint"])
            if result.get("hint")
            else "the old release serves; look at: journalctl -u edge-build",
            evidence=result["evidence"] if isinstance(result.get("evidence"), dict) else {},
        )
    return built_of(result)


def _code_of(result: Mapping[str, Any]) -> str:
    code = str(result.get("code", ""))
    return code if code.partition(".")[0] in ("build", "smoke", "device", "verify") else "build.failed"


def switch(session: Session, request: SwitchRequest) -> SwitchAnswer:
    """Arm, switch, restart, start the trial; from the arming on the device finishes this alone, whoever listens."""
    offer = session.offered(SWITCH, request.release)
    return start_trial(session, offer.manifest.release, confirm=request.confirm, offer=offer)


def start_trial(session: Session, release: str, *, confirm: bool, offer: Offer | None) -> SwitchAnswer:
    """Put a release on trial that is complete and has its engine."""
    device = session.device
    baseline = session.talk.while_doing(
        lambda: measure_baseline(device.layout.health, release=device.releases.current()), phase="baseline", total_s=5.0
    )
    session.talk.go_on_alone()
    arm(
        device,
        release,
        moment=this_moment(),
        confirm=confirm,
        baseline=baseline,
        seen=None if offer is None else spent_by(offer.manifest, is_downgrade=offer.is_downgrade),
        by_force=True,  # whoever came so far was let through on purpose
    )
    switch_to(device, release)
    problem = restart_runtime(session)
    # Also when the restart failed: the trial is who says so, and who starts the way back.
    session.units.start(TRIAL_UNIT, wait=False, timeout_s=_TRIAL_START_S)
    return SwitchAnswer(release=release, confirm=confirm, note=problem or "")


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
