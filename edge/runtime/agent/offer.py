"""A release is offered: what its push would do, and that its blobs may come."""

from __future__ import annotations

from datetime import datetime, timezone

from edge.device.device import Device, collect
from edge.device.state import Phase, read_counters
from edge.errors import DeployError
from edge.runtime.agent.accept import refusals, take_statement
from edge.runtime.agent.session import Session, bytes_of
from edge.runtime.build.request import read_result
from edge.runtime.software.binding import problem_of_software, told_of_change
from edge.runtime.trial.soundness import why_better
from edge.runtime.trial.trust import Signed, take_trust, verify_offer
from edge.wire.peer import problem_of
from edge.wire.release import (
    OfferRequest,
    PlanAnswer,
    PlannedEngine,
    PutManifestAnswer,
    RingAnswer,
    RingRequest,
    TrustAnswer,
    TrustRequest,
)
from edge.wire.verbs import PUT_MANIFEST

__all__ = ["is_built", "plan", "put_manifest", "ring", "trust"]


def plan(session: Session, request: OfferRequest) -> PlanAnswer:
    """Say what a push of this release would do; changes nothing and needs no lock."""
    offer = _read_offer(session, request)
    release = offer.manifest.release
    state = session.device.state()
    missing = session.device.store.missing(offer.lengths)
    key = session.device.releases.engine_key(release)
    better = why_better(session.device, release)
    against = refusals(session.device, offer, retry_bad=request.retry_bad, is_cleared=True)
    has_engine = is_built(session.device, release) and better is None
    is_current = session.device.releases.current() == release and has_engine and not missing
    is_unchanged = is_current and state.phase is Phase.IDLE and _is_taken(session.device, offer)
    return PlanAnswer(
        release=release,
        current=session.device.releases.current(),
        phase=state.phase.value,
        last=state.last,
        is_unchanged=is_unchanged,
        missing={sha256: offer.lengths[sha256] - offset for sha256, offset in missing.items()},
        bytes=sum(offer.lengths[sha256] - offset for sha256, offset in missing.items()),
        engine=_planned_engine(session, key, better, is_built=has_engine),
        refusals=tuple(problem_of(error) for error in against),
        software=told_of_change(session.device, offer.manifest),
    )


def _is_taken(device: Device, offer: Signed) -> bool:
    """Return whether a release that serves is kept as it was signed now, and counted so, or as it was signed later."""
    manifest, releases = offer.manifest, device.releases
    if offer.is_downgrade or manifest.sequence < releases.sequence(manifest.release):
        return True
    seen = read_counters(device.layout, device.durable.files).sequences.get(manifest.channel, 0)
    kept = releases.manifest(manifest.release), releases.signature(manifest.release)
    return seen >= manifest.sequence and kept == (offer.content, offer.signature)


def _planned_engine(session: Session, key: str | None, better: str | None, *, is_built: bool) -> PlannedEngine:
    why = better or (
        "this release has none here yet, unless one of the same inputs is kept"
        if key is None
        else f"engine {key[:12]} is incomplete"
    )
    result = read_result(session.device)
    last_build_s = None if result is None or result.problem is not None else result.seconds
    return PlannedEngine(key=key, build=not is_built, why=why, last_build_s=last_build_s)


def is_built(device: Device, release: str) -> bool:
    """Return whether a release is here with its engine and with the software that it brings: it could serve."""
    if not device.releases.is_ready(release):
        return False
    try:
        return problem_of_software(device, release) is None
    except DeployError:
        return False


def put_manifest(session: Session, request: OfferRequest) -> PutManifestAnswer:
    """Take the offer of a release; from then on its blobs, and nothing else, are taken."""
    session.check_receives(PUT_MANIFEST)
    session.offer = None
    offer = _read_offer(session, request)
    against = refusals(session.device, offer, retry_bad=request.retry_bad)
    if [error.code for error in against] == ["preflight.space"]:
        # Only when nothing else stands against it, and never what serves or is the way back.
        now_s, keep = datetime.now(timezone.utc).timestamp(), (offer.manifest.release,)
        with session.locked("garbage collection"):
            session.talk.while_doing(
                lambda: collect(session.device, now_s=now_s, keep=keep), phase="clean", total_s=None
            )
        against = refusals(session.device, offer, retry_bad=request.retry_bad)
    if against:
        raise against[0]
    session.offer = offer
    return PutManifestAnswer(release=offer.manifest.release, signer=offer.signer)


def _read_offer(session: Session, request: OfferRequest) -> Signed:
    content = bytes_of(request.manifest, "the manifest of an offer")
    return verify_offer(session.device, content, bytes_of(request.signature, "its signature"))


def ring(session: Session, request: RingRequest) -> RingAnswer:
    return take_statement(session.device, request)


def trust(session: Session, request: TrustRequest) -> TrustAnswer:
    """DeployError `verify.trust.*`, `device.*`."""
    return TrustAnswer(version=take_trust(session.device, bytes_of(request.chain, "a chain of trust")))
