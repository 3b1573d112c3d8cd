"""Whether a release may come here: its signature, what it says, what this device has, and what it has taken before.

A trusted signer states the release of a ring (docs/adr/0019).
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from datetime import datetime, timezone

from edge.bundle import fit
from edge.bundle.manifest import Manifest
from edge.bundle.statement import RING, RingStatement, asks_for_statements, decode_statement
from edge.device.device import Device, collect, reclaimable_bytes
from edge.device.facts import gather_facts, is_clock_sure, read_settings
from edge.device.state import Counters, Phase, raise_counters, read_bad, read_counters
from edge.errors import DeployError
from edge.registry.reference import read_pull_settings
from edge.reports import LastSwitch
from edge.runtime.agent.preflight import (
    check_engine,
    check_media,
    check_preflight,
    check_secrets,
    check_software,
    need_of,
)
from edge.runtime.agent.session import Session
from edge.runtime.build.request import read_result
from edge.runtime.software.binding import problem_of_software, told_of_change
from edge.runtime.trial.soundness import why_better
from edge.runtime.trial.trust import Signed, signers_text, take_trust, time_of, verify_counting, verify_offer
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
from edge.wire.verbs import PUT_MANIFEST, RingReport

__all__ = [
    "bytes_of",
    "channels_of",
    "check_not_bad",
    "check_trusted_state",
    "counters_of",
    "is_built",
    "left_by",
    "plan",
    "put_manifest",
    "ring",
    "ring_report",
    "spent_by",
    "trust",
]


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


def _read_offer(session: Session, request: OfferRequest) -> Signed:
    content = bytes_of(request.manifest, "the manifest of an offer")
    return verify_offer(session.device, content, bytes_of(request.signature, "its signature"))


def _refusals(session: Session, offer: Signed, request: OfferRequest, *, is_cleared: bool = False) -> list[DeployError]:
    """Return what stands against an offer; `is_cleared`: as if what it does not need were removed, as its push does."""
    device, manifest = session.device, offer.manifest
    facts = gather_facts(device.layout)
    if is_cleared:
        free_bytes = facts.disk_free_bytes + reclaimable_bytes(device, keep=(manifest.release,))
        facts = dataclasses.replace(facts, disk_free_bytes=free_bytes)
    counters = read_counters(device.layout, device.durable.files)
    checks = [
        lambda: _check_ring(session, manifest),
        lambda: check_engine(manifest),
        lambda: check_software(manifest, facts, device.layout),
        lambda: check_secrets(manifest, device.layout),
        lambda: check_media(manifest),
        *check_preflight(need_of(manifest, device), facts, device.layout),
    ]
    if not request.retry_bad:
        checks += [lambda: check_not_bad(device, manifest.release), lambda: check_trusted_state(device)]
        if session.is_for_pull:
            checks.append(lambda: _check_not_left(device, manifest.release))
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


def counters_of(manifest: Manifest) -> Counters:
    """Return what a device has seen once it has taken the release."""
    return Counters(
        sequences={manifest.channel: manifest.sequence},
        newest={manifest.channel: manifest.release},
        newest_created_at=manifest.created_at,
    )


def spent_by(manifest: Manifest, *, is_downgrade: bool) -> Counters:
    """Return what a device has seen once the release goes on trial.

    A permission to go back fits one counter, and moves it on: so it is used once, and a cut does not give it back.
    """
    seen = counters_of(manifest)
    if not is_downgrade or manifest.downgrade_from is None:
        return seen
    return seen.merged(Counters(sequences={manifest.channel: manifest.downgrade_from + 1}))


def channels_of(device: Device, counters: Counters) -> tuple[str, ...]:
    """Return the channels that a device is bound to: those of its device.toml, or else what it has taken so far."""
    stated = read_settings(device.layout.device_toml).channels
    return stated or tuple(sorted(counters.sequences))


def check_not_bad(device: Device, release: str) -> None:
    """DeployError `preflight.bad` if the release has failed on this device before."""
    bad = read_bad(device.layout, device.durable.files).get(release)
    if bad is not None:
        raise DeployError(
            "preflight.bad",
            f"release {release} has failed on this device at {bad.at}: {bad.reason}",
            hint="push another release; if the cause is gone, push it again with --retry-bad",
            evidence={"verdict": bad.verdict.value, "reason": bad.reason, "at": bad.at},
        )


def _check_not_left(device: Device, release: str) -> None:
    """DeployError `preflight.left` if the device has left the release, by its verdict or by a person."""
    left = left_by(device)
    if left is not None and left[0] == release:
        raise DeployError(
            "preflight.left",
            f"release {release} was left on this device at {left[1].at}: {left[1].reason or 'by hand'}",
            hint="what comes by itself overrules no person: publish another release, or push this one",
        )


def left_by(device: Device) -> tuple[str, LastSwitch] | None:
    """Return the release that the device has left last, by a verdict or by a person, and how; None: it has not.

    Going on to a newer release leaves none, and where nothing serves there is nothing to keep.
    """
    state, current = device.state(), device.releases.current()
    last = state.last
    if last is None or current is None or state.phase is not Phase.IDLE:
        return None
    newest = read_counters(device.layout, device.durable.files).newest.values()
    is_back = last.result == "rolled-back" or (last.before in newest and current not in newest)
    left = last.release if last.result == "rolled-back" else last.before
    return (left, last) if is_back and left not in (None, current) else None


def check_trusted_state(device: Device) -> None:
    """DeployError `person.failed` if the device has stopped trying."""
    state = device.state()
    if state.phase is Phase.FAILED:
        raise DeployError(
            "person.failed",
            f"the device stopped trying at {state.started_at}: {state.reason}",
            hint="edge-deploy rollback --to a release that is kept, or push a good one with --retry-bad",
        )


def ring(session: Session, request: RingRequest) -> RingAnswer:
    """Take a statement that is not older than the last one; from then on it alone says what a pull may bring.
    Raises `DeployError` `verify.ring.*`, `verify.signature.*`, `verify.ahead.time`, `device.*`.
    """
    device = session.device
    if not asks_for_statements(signers_text(device)):
        return RingAnswer(is_asked_for=False)
    if not request.statement:
        raise _absent(_tag(device))
    content, signature = bytes_of(request.statement, "a statement"), bytes_of(request.signature, "its signature")
    verify_counting(device, content, signature, namespace=RING, at=time_of(device))
    statement, tag = decode_statement(content), _tag(device)
    if statement.tag != tag:
        raise DeployError(
            "verify.ring.other",
            f"the statement is for {statement.tag}, this device is of {tag}",
            hint="look who writes to the registry: edge-deploy promote puts each at its own tag",
        )
    with device.locked():
        seen = read_counters(device.layout, device.durable.files).serial_of(tag)
        _check(device, statement, seen)
        raise_counters(device.layout, device.durable, Counters(rings={tag: (statement.serial, content.decode())}))
    return RingAnswer(is_asked_for=True, release=statement.release)


def trust(session: Session, request: TrustRequest) -> TrustAnswer:
    """DeployError `verify.trust.*`, `device.*`."""
    return TrustAnswer(version=take_trust(session.device, bytes_of(request.chain, "a chain of trust")))


def _check_ring(session: Session, manifest: Manifest) -> None:
    """Raise DeployError `verify.ring.*` if a pull offers a release that the ring is not to run."""
    device = session.device
    if not session.is_for_pull or not asks_for_statements(signers_text(device)):
        return
    tag, statement = _tag(device), _last_statement(device)
    if statement is None:
        raise _absent(tag)
    _check(device, statement, statement.serial)
    miss = statement.misses(channel=manifest.channel, release=manifest.release, sequence=manifest.sequence)
    if miss is not None:
        raise miss


def ring_report(device: Device) -> RingReport | None:
    """Return what was stated last for the ring of this device; None: nothing, or that is unknown."""
    try:
        statement = _last_statement(device)
        at = time_of(device)
    except DeployError:
        return None
    if statement is None:
        return None
    reasons = statement.unfit(seen_serial=statement.serial, at=at, is_clock_sure=False)
    return RingReport(
        tag=statement.tag,
        release=statement.release,
        serial=statement.serial,
        valid_until=statement.valid_until,
        is_over=any(reason.code == "verify.ring.expired" for reason in reasons),
    )


def bytes_of(text: str, name: str) -> bytes:
    """DeployError `request.value` if `text` is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise DeployError("request.value", f"{name}: expected base64") from None


def _absent(tag: str) -> DeployError:
    return DeployError(
        "verify.ring.absent",
        f"{tag}: no key that counts has stated what this ring is to run",
        hint="edge-deploy promote states it; publishing to a tag alone does not",
    )


def _last_statement(device: Device) -> RingStatement | None:
    found = read_counters(device.layout, device.durable.files).rings.get(_tag(device))
    return None if found is None else decode_statement(found[1].encode())


def _tag(device: Device) -> str:
    return read_pull_settings(device.layout.pull_toml).reference.tag or ""


def _check(device: Device, statement: RingStatement, seen_serial: int) -> None:
    for reason in statement.unfit(seen_serial=seen_serial, at=time_of(device), is_clock_sure=is_clock_sure()):
        raise reason
