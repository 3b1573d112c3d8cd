"""One device: its facts, the steps, and either the plan or the change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge.delivery.event import UPLOAD
from edge.delivery.report import Report
from edge.deploy.provision.admin import AdminShell
from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.gatherer import Gatherer
from edge.deploy.provision.jetson import extra_of
from edge.deploy.provision.lockout import own_keys, require_way_in
from edge.deploy.provision.wanted import Wanted, steps
from edge.deploy.provision.wheels import WheelSet
from edge.errors import DeployError
from edge.transport.ssh_command import SshAddress
from edge.untrusted import cleaned

__all__ = ["BROUGHT", "PLAN", "Provisioned", "WheelSource", "provision", "undo_provision"]

PLAN = "plan"
"""The phase whose notes are the changes."""

BROUGHT = "software"
"""The phase whose notes say what of the software that releases bring cannot run over what was installed."""

_UNPACKED = 4  # wheels and what they unpack to, in lengths of the wheels
_ROOM_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """What was changed, or would be; `bytes_sent` of wheels; `told`: what is not well now, and stops nothing."""

    changes: tuple[str, ...]
    is_applied: bool
    bytes_sent: int = 0
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """Where wheels come from: `folder`, or the lock alone if None. A Jetson gets pycuda, unless `is_cpu_only`."""

    gatherer: Gatherer
    folder: Path | None = None
    is_cpu_only: bool = False


def provision(
    shell: AdminShell,
    wanted: Wanted,
    *,
    software: WheelSource,
    is_plan: bool,
    report: Report,
    pusher: SshAddress | None = None,
) -> Provisioned:
    """Make a device of the machine behind `shell`, or say what that would change; `pusher`: who pushes from here.

    Raises:
        DeployError: `request.*`, `transfer.*`, `preflight.*`; `verify.provision` if something of somebody else's is
            in the way: then nothing has been changed.
        Interrupted: once the shell's `stop` is set.
    """
    host = shell.address.host
    with report.phase("facts"):
        facts = shell.facts()
        _require_keys(wanted, facts, host)
    with report.phase("wheels"):
        report.note("wheels", f"for {facts.architecture}, Python {facts.python[0]}.{facts.python[1]}")
        extra = None if software.is_cpu_only else extra_of(facts)
        chosen = software.gatherer.wheels(facts, folder=software.folder, extra=extra)
        for name in chosen.made_here:
            report.note("wheels", f"{name} was made on this side, so no lock names it: SHA-256 {chosen.digests[name]}")
    with report.phase(PLAN):
        plan = _ask(shell, {"steps": steps(wanted, facts, chosen, folder=None), "is_plan": True})
        for change in plan.changes:
            report.note(PLAN, change)
        _require_revocations(wanted, facts, host)
        if wanted.is_exact and pusher is not None:
            require_way_in(wanted, plan.changes, own_keys(pusher), host)
    if is_plan or not plan.changes:
        return plan
    return _apply(shell, wanted, facts, chosen, plan, report)


def undo_provision(shell: AdminShell, *, is_plan: bool, purge: bool, report: Report) -> Provisioned:
    """Take back what provision wrote; data stays unless `purge`.

    Raises:
        DeployError: as `provision`.
    """
    with report.phase(PLAN):
        done = _ask(shell, {"is_undo": True, "is_plan": is_plan, "purge": purge, "steps": []})
        for change in done.changes:
            report.note(PLAN, change)
    return done


def _apply(
    shell: AdminShell,
    wanted: Wanted,
    facts: ProvisionFacts,
    wheels: WheelSet,
    plan: Provisioned,
    report: Report,
) -> Provisioned:
    host, place, sent = shell.address.host, None, 0
    if any(change.startswith("install ") for change in plan.changes):
        _require_room(wheels, facts, host)
        missing = wheels.missing(facts.wheels)
        if missing:
            total = wheels.missing_bytes(facts.wheels)
            with report.phase(UPLOAD, total=total):
                place, sent = shell.upload(missing, on_bytes=lambda done: report.far(UPLOAD, min(done, total), total))
    try:
        with report.phase("apply"):
            done = _ask(shell, {"steps": steps(wanted, facts, wheels, folder=place), "is_plan": False})
    finally:
        if place is not None:
            shell.discard(place)
    for words in done.told:
        report.note(BROUGHT, words, code="build.software")
    return replace(done, is_applied=True, bytes_sent=sent)


def _ask(shell: AdminShell, request: dict[str, Any]) -> Provisioned:
    answer = shell.steps({"is_undo": False, "purge": False, **request})
    if answer.conflicts:
        raise DeployError(
            "verify.provision",
            f"{shell.address.host}: {'; '.join(answer.conflicts)}",
            hint="provision overwrites nothing that it did not write",
            evidence={"conflicts": list(answer.conflicts)},
        )
    if answer.failed:
        raise DeployError("device.provision", f"{shell.address.host}: {answer.failed}")
    return Provisioned(changes=answer.changes, is_applied=answer.applied, told=answer.told)


def _require_keys(wanted: Wanted, facts: ProvisionFacts, host: str) -> None:
    for option, is_given, is_there in (
        ("--key", bool(wanted.keys), facts.has_key),
        ("--signer", bool(wanted.signers), facts.has_signer),
    ):
        if not is_given and not is_there:
            raise DeployError(
                "request.key",
                f"{host} knows nobody yet who may push: {option} is missing",
                hint=f"give your public key: {option} ~/.ssh/id_ed25519.pub",
            )


def _require_revocations(wanted: Wanted, facts: ProvisionFacts, host: str) -> None:
    """Hold that nobody's signatures count again because an older list was at hand."""
    if wanted.revoked is None or wanted.is_exact:
        return
    if again := sorted(facts.revoked - wanted.revoked.entries):
        raise DeployError(
            "request.revoked",
            f"{host} revokes {len(again)} more than this list, which would count again: {cleaned(again[0])[:100]}",
            hint="add them with ssh-keygen -k -u -f LIST KEY.pub, or say --exactly",
            evidence={"would_count_again": [cleaned(one)[:100] for one in again[:100]]},
        )


def _require_room(wheels: WheelSet, facts: ProvisionFacts, host: str) -> None:
    needed = _UNPACKED * wheels.length_bytes + _ROOM_BYTES
    if facts.free_bytes < needed:
        raise DeployError(
            "preflight.space",
            f"{host} has {facts.free_bytes / 1e6:.0f} MB free where /opt is, expected {needed / 1e6:.0f} MB",
            hint="make room there",
            evidence={"free_bytes": facts.free_bytes, "needed_bytes": needed},
        )
