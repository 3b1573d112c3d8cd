"""Whether a release may come here: its signature first, then what it says, then what this device has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timezone

from edge.bundle import fit
from edge.device.device import Device, collect, reclaimable_bytes
from edge.device.facts import gather_facts, is_clock_sure, read_settings
from edge.device.state import Phase, read_counters
from edge.errors import DeployError
from edge.runtime.agent.history import (
    bytes_of,
    channels_of,
    check_not_bad,
    check_not_left,
    check_ring,
    check_trusted_state,
)
from edge.runtime.agent.preflight import (
    check_engine,
    check_media,
    check_preflight,
    check_secrets,
    check_software,
    need_of,
)
from edge.runtime.agent.session import Offer, Session
from edge.runtime.build.request import read_result
from edge.runtime.software.binding import problem_of_software, told_of_change
from edge.runtime.trial.soundness import why_better
from edge.runtime.trial.trust import time_of, verify_offer
from edge.wire.peer import problem_of
from edge.wire.release import OfferRequest, PlanAnswer, PlannedEngine, PutManifestAnswer
from edge.wire.verbs import PUT_MANIFEST

__all__ = ["is_built", "plan", "put_manifest"]


def plan(session: Session, request: OfferRequest) -> PlanAnswer:
    """Say what a push of this release would do; changes nothing and needs no lock."""
    offer = _read_offer(session, request)
    release = offer.manifest.release
    state = session.device.state()
    missing = session.device.store.missing(offer.lengths)
    key = session.device.releases.engine_key(release)
    better = why_better(session.device, release)
    has_engine = is_built(session.device, release) and better is None
    is_current = session.device.releases.current() == release and has_engine and not missing
    return PlanAnswer(
        release=release,
        current=session.device.releases.current(),
        phase=state.phase.value,
        last=state.last,
        is_unchanged=is_current and state.phase is Phase.IDLE,
        missing={sha256: offer.lengths[sha256] - offset for sha256, offset in missing.items()},
        bytes=sum(offer.lengths[sha256] - offset for sha256, offset in missing.items()),
        engine=_planned_engine(session, key, better, is_built=has_engine),
        refusals=tuple(problem_of(error) for error in _refusals(session, offer, request, is_cleared=True)),
        software=told_of_change(session.device, offer.manifest),
    )


def _planned_engine(session: Session, key: str | None, better: str | None, *, is_built: bool) -> PlannedEngine:
    why = better or (
        "this release has none here yet; one of the same inputs is used again"
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
    refusals = _refusals(session, offer, request)
    if [error.code for error in refusals] == ["preflight.space"]:
        # Only when nothing else stands against it, and never what serves or is the way back.
        now_s, keep = datetime.now(timezone.utc).timestamp(), (offer.manifest.release,)
        with session.locked("garbage collection"):
            session.talk.while_doing(
                lambda: collect(session.device, now_s=now_s, keep=keep), phase="clean", total_s=None
            )
        refusals = _refusals(session, offer, request)
    if refusals:
        raise refusals[0]
    session.offer = offer
    return PutManifestAnswer(release=offer.manifest.release, signer=offer.signer)


def _read_offer(session: Session, request: OfferRequest) -> Offer:
    content, signature = (
        bytes_of(request.manifest, "the manifest of an offer"),
        bytes_of(request.signature, "its signature"),
    )
    found = verify_offer(session.device, content, signature)
    return Offer(
        manifest=found.manifest,
        content=content,
        signature=signature,
        signer=found.signer,
        is_downgrade=found.is_downgrade,
    )


def _refusals(session: Session, offer: Offer, request: OfferRequest, *, is_cleared: bool = False) -> list[DeployError]:
    """Return what stands against an offer; `is_cleared`: as if what it does not need were removed, as its push does."""
    device, manifest = session.device, offer.manifest
    facts = gather_facts(device.layout)
    if is_cleared:
        free_bytes = facts.disk_free_bytes + reclaimable_bytes(device, keep=(manifest.release,))
        facts = dataclasses.replace(facts, disk_free_bytes=free_bytes)
    counters = read_counters(device.layout, device.durable.files)
    checks = [
        lambda: check_ring(session, manifest),
        lambda: check_engine(manifest),
        lambda: check_software(manifest, facts, device.layout),
        lambda: check_secrets(manifest, device.layout),
        lambda: check_media(manifest),
        *check_preflight(need_of(manifest, device), facts, device.layout),
    ]
    if not request.retry_bad:
        checks += [lambda: check_not_bad(device, manifest.release), lambda: check_trusted_state(device)]
        if session.is_for_pull:
            checks.append(lambda: check_not_left(device, manifest.release))
    misfits = fit.refusals(
        manifest,
        facts,
        sequences=counters.sequences,
        newest=counters.newest,
        at=time_of(device),
        channels=channels_of(device, counters),
        is_clock_sure=is_clock_sure(),
        is_downgrade_signed=offer.is_downgrade,
        allow_unproven=read_settings(device.layout.device_toml).allow_unproven,
    )
    return [*misfits, *(error for error in map(_error_of, checks) if error is not None)]


def _error_of(check: Callable[[], None]) -> DeployError | None:
    try:
        check()
    except DeployError as error:
        return error
    return None
