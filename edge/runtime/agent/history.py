"""History of a device's releases: sequences taken, failed releases, statements of its ring.

A trusted signer states the release of a ring (docs/adr/0019).
"""

from __future__ import annotations

import base64

from edge.bundle.manifest import Manifest
from edge.bundle.ring import RING, RingStatement, asks_for_statements, decode_statement
from edge.device.device import Device
from edge.device.facts import is_clock_sure, read_settings
from edge.device.state import Counters, Phase, raise_counters, read_bad, read_counters
from edge.errors import DeployError
from edge.registry.pull_settings import read_pull_settings
from edge.reports import LastSwitch
from edge.runtime.agent.session import Session
from edge.runtime.trial.trust import signers_text, take_trust, time_of, verify_counting
from edge.wire.release import RingAnswer, RingRequest, TrustAnswer, TrustRequest
from edge.wire.status import RingReport

__all__ = [
    "bytes_of",
    "channels_of",
    "check_not_bad",
    "check_not_left",
    "check_ring",
    "check_trusted_state",
    "counters_of",
    "left_by",
    "ring",
    "ring_report",
    "spent_by",
    "trust",
]


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


def check_not_left(device: Device, release: str) -> None:
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


def check_ring(session: Session, manifest: Manifest) -> None:
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
