"""What a device accepts (docs/adr/0016): each reason not to take a release that a trusted key has signed.

Here are its channels and counters, the time, its own verdicts, and what the statement of its ring says (docs/adr/0019).
Whose signature counts is in `edge.runtime.trial.trust`, what a device lacks in `edge.runtime.agent.preflight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from edge.bundle.bounds import ahead, permission_gaps, time_text
from edge.bundle.checks import read_time, version_parts
from edge.bundle.manifest import GoldenFrames, Manifest
from edge.bundle.statement import RING, RingStatement, asks_for_statements, decode_statement
from edge.device.device import Device, reclaimable_bytes
from edge.device.facts import DeviceSettings, gather_facts, is_clock_sure, read_settings
from edge.device.state import Counters, Phase, raise_counters, read_bad, read_counters
from edge.errors import DeployError
from edge.registry.reference import read_pull_settings
from edge.reports import Facts, LastSwitch
from edge.runtime.agent.preflight import lacks, need_of
from edge.runtime.agent.session import bytes_of
from edge.runtime.trial.trust import Signed, signers_text, time_of, verify_counting
from edge.wire.release import RingAnswer, RingRequest
from edge.wire.verbs import RingReport

__all__ = [
    "channels_of",
    "counters_of",
    "left_by",
    "misfits",
    "refusals",
    "ring_report",
    "spent_by",
    "take_statement",
]

_ANY = "any"  # as a manifest's `compatible`: every device


def refusals(device: Device, offer: Signed, *, retry_bad: bool, is_cleared: bool = False) -> list[DeployError]:
    """Return what stands against an offer, the gravest first: `verify.*` before `preflight.*`.

    `retry_bad`: a person asks for it, whatever became of it here. `is_cleared`: as if what it does not need were
    removed, as its push does.
    """
    manifest, layout, facts = offer.manifest, device.layout, gather_facts(device.layout)
    if is_cleared:
        free_bytes = facts.disk_free_bytes + reclaimable_bytes(device, keep=(manifest.release,))
        facts = replace(facts, disk_free_bytes=free_bytes)
    found = misfits(
        manifest,
        facts,
        read_settings(layout.device_toml),
        read_counters(layout, device.durable.files),
        at=time_of(device),
        is_clock_sure=is_clock_sure(),
        is_permission=offer.is_downgrade,
    )
    return [
        *found,
        *_told(_off_ring(device, manifest) if device.is_for_pull else ()),
        *lacks(manifest, need_of(manifest, device), facts, layout),
        *_told(() if retry_bad else _verdicts(device, manifest.release)),
    ]


def _told(found: Iterable[DeployError]) -> Iterator[DeployError]:
    """Yield what stands against an offer, and what hinders to find that: neither hides what was found before."""
    try:
        yield from found
    except DeployError as error:
        yield error


def misfits(
    manifest: Manifest,
    facts: Facts,
    settings: DeviceSettings,
    counters: Counters,
    *,
    at: datetime,
    is_clock_sure: bool,
    is_permission: bool,
) -> Iterator[DeployError]:
    """Yield why a release is not meant for a device, at the time `at`, after what that has taken before.

    `is_clock_sure`: the device's clock is kept right, so that `at` is now. `is_permission`: the signature was made in
    the namespace that allows a lower sequence.
    """
    yield from _not_meant(manifest, facts)
    if manifest.expires_at is not None and at >= read_time("expires_at", manifest.expires_at):
        yield DeployError(
            "verify.expired",
            f"the release expired at {manifest.expires_at}, the device's time is {time_text(at)} or later",
            hint="bundle it again; if the device's clock is ahead, set it",
            evidence={"expires_at": manifest.expires_at, "device_time": time_text(at)},
        )
    yield from ahead(manifest, at=at, is_clock_sure=is_clock_sure)
    yield from _not_its_turn(manifest, settings, counters, is_permission=is_permission)
    if manifest.golden_frames is GoldenFrames.NONE and not settings.allow_unproven:
        yield DeployError(
            "verify.unproven",
            f"release {manifest.release} has no golden frames, and {facts.name} takes proven releases only",
            hint="bundle it with --golden DIR, or set allow_unproven = true in the device's device.toml",
        )
    yield from _version("preflight.tensorrt", "TensorRT", manifest.tensorrt, facts.tensorrt, facts.name)
    yield from _version("preflight.l4t", "L4T", manifest.l4t, facts.l4t, facts.name)


def _not_meant(manifest: Manifest, facts: Facts) -> Iterator[DeployError]:
    if _ANY not in manifest.compatible and not set(manifest.compatible) & set(facts.compatible):
        yield DeployError(
            "verify.device",
            f"the release is compatible with {', '.join(manifest.compatible)}, {facts.name} is "
            f"{', '.join(facts.compatible)}",
            hint="push to a matching target, or bundle it again with --compatible",
            evidence={"compatible": list(manifest.compatible), "device": list(facts.compatible)},
        )
    if manifest.targets and facts.name not in manifest.targets:
        yield DeployError(
            "verify.device",
            f"the release is for {', '.join(manifest.targets[:10])}, this is {facts.name}",
            hint="push to one of these targets, or bundle it again with --target",
            evidence={"targets": list(manifest.targets[:100]), "device": facts.name},
        )


def _not_its_turn(
    manifest: Manifest, settings: DeviceSettings, counters: Counters, *, is_permission: bool
) -> Iterator[DeployError]:
    """Yield why a release may not follow what the device has taken."""
    channels, channel, name = channels_of(settings, counters), manifest.channel, settings.name
    if channels and channel not in channels:
        yield DeployError(
            "verify.channel",
            f"the release is of channel {channel}, {name} takes {', '.join(channels)}",
            hint=f"bundle it for that channel, or bind the device: edge-deploy provision --channel {channel}",
            evidence={"channel": channel, "channels": list(channels)},
        )
        return
    seen, newest = counters.sequences.get(channel, 0), counters.newest.get(channel, manifest.release)
    if is_permission:
        yield from permission_gaps(manifest)
        if manifest.downgrade_from not in (None, seen):
            yield DeployError(
                "verify.downgrade.counter",
                f"the permission to go back was given for counter {manifest.downgrade_from} of channel {channel}, "
                f"{name} is at {seen}: it was used, or the device has taken something newer since",
                hint=f"if it is still wanted, sign another one: edge-deploy bundle --downgrade {seen} --target {name}",
                evidence={"channel": channel, "seen": seen, "given_for": manifest.downgrade_from},
            )
    elif manifest.sequence < seen:
        yield DeployError(
            "verify.downgrade",
            f"{name} has accepted sequence {seen} of channel {channel}, this is {manifest.sequence}",
            hint="give it a new sequence: edge-deploy bundle --again OLD.bundle; "
            f"or go back on purpose, once, on one device: edge-deploy bundle --downgrade {seen}",
            evidence={"channel": channel, "seen": seen, "sequence": manifest.sequence},
        )
    elif manifest.sequence == seen and newest != manifest.release:
        yield DeployError(
            "verify.downgrade.equal",
            f"{name} has accepted release {newest} with sequence {seen} of channel {channel}, {manifest.release} has "
            "the same",
            hint="give it a sequence of its own: edge-deploy bundle --again OLD.bundle",
            evidence={"channel": channel, "seen": seen, "release": newest},
        )


def _version(
    code: str, name: str, bounds: tuple[str | None, str | None], found: str | None, device: str
) -> Iterator[DeployError]:
    low, high = bounds
    if low is None and high is None:
        return
    is_within = (
        found is not None
        and (low is None or version_parts(found) >= version_parts(low))
        and (high is None or version_parts(found) < version_parts(high))
    )
    if not is_within:
        asked = " and ".join(
            part for part in (low and f"{name} {low} or newer", high and f"{name} older than {high}") if part
        )
        yield DeployError(
            code,
            f"the release needs {asked}, {device} has {found or 'none'}",
            hint="update the device, or bundle the release for it",
            evidence={"from": low, "below": high, "device": found},
        )


def channels_of(settings: DeviceSettings, counters: Counters) -> tuple[str, ...]:
    """Return the channels that a device is bound to: those of its device.toml, or else what it has taken so far."""
    return settings.channels or tuple(sorted(counters.sequences))


def counters_of(manifest: Manifest) -> Counters:
    """Return what a device has seen once it has taken the release."""
    return Counters(
        sequences={manifest.channel: manifest.sequence},
        newest={manifest.channel: manifest.release},
        newest_created_at=manifest.created_at,
    )


def spent_by(offer: Signed) -> Counters:
    """Return what a device has seen once the release goes on trial.

    A permission to go back fits one counter, and moves it on: so it is used once, and a cut does not give it back.
    """
    manifest, seen = offer.manifest, counters_of(offer.manifest)
    if not offer.is_downgrade or manifest.downgrade_from is None:
        return seen
    return seen.merged(Counters(sequences={manifest.channel: manifest.downgrade_from + 1}))


def _verdicts(device: Device, release: str) -> Iterator[DeployError]:
    """Yield what became of a release here that stands against it, until a person says otherwise."""
    bad, state = read_bad(device.layout, device.durable.files).get(release), device.state()
    left = left_by(device) if device.is_for_pull else None
    if bad is not None:
        yield DeployError(
            "preflight.bad",
            f"release {release} has failed on this device at {bad.at}: {bad.reason}",
            hint="push another release; if the cause is gone, push it again with --retry-bad",
            evidence={"verdict": bad.verdict.value, "reason": bad.reason, "at": bad.at},
        )
    if state.phase is Phase.FAILED:
        yield DeployError(
            "person.failed",
            f"the device stopped trying at {state.started_at}: {state.reason}",
            hint="edge-deploy rollback --to a release that is kept, or push a good one with --retry-bad",
        )
    if left is not None and left[0] == release:
        yield DeployError(
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


def take_statement(device: Device, request: RingRequest) -> RingAnswer:
    """Take a statement that is not older than the last one; from then on it alone says what a pull may bring.
    Raises `DeployError` `verify.ring.*`, `verify.signature.*`, `verify.ahead.time`, `device.*`.
    """
    if not asks_for_statements(signers_text(device)):
        return RingAnswer(is_asked_for=False)
    tag = _tag(device)
    if not request.statement:
        raise _absent(tag)
    content, signature = bytes_of(request.statement, "a statement"), bytes_of(request.signature, "its signature")
    verify_counting(device, content, signature, namespace=RING, at=time_of(device))
    statement = decode_statement(content)
    if statement.tag != tag:
        raise DeployError(
            "verify.ring.other",
            f"the statement is for {statement.tag}, this device is of {tag}",
            hint="look who writes to the registry: edge-deploy promote puts each at its own tag",
        )
    with device.locked():
        seen = read_counters(device.layout, device.durable.files).serial_of(tag)
        for reason in statement.unfit(seen_serial=seen, at=time_of(device), is_clock_sure=is_clock_sure()):
            raise reason
        raise_counters(device.layout, device.durable, Counters(rings={tag: (statement.serial, content.decode())}))
    return RingAnswer(is_asked_for=True, release=statement.release)


def _off_ring(device: Device, manifest: Manifest) -> Iterator[DeployError]:
    """Yield why a release is not what the ring of this device is to run."""
    if not asks_for_statements(signers_text(device)):
        return
    statement = _last_statement(device)
    if statement is None:
        yield _absent(_tag(device))
        return
    yield from statement.unfit(seen_serial=statement.serial, at=time_of(device), is_clock_sure=is_clock_sure())
    miss = statement.misses(channel=manifest.channel, release=manifest.release, sequence=manifest.sequence)
    if miss is not None:
        yield miss


def ring_report(device: Device) -> RingReport | None:
    """Return what was stated last for the ring of this device; None: nothing, or that is unknown."""
    try:
        statement, at = _last_statement(device), time_of(device)
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
