"""One device: its facts, the steps, and either the plan or the change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge.deploy.provision.admin import AdminShell
from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.jetson import extra_of
from edge.deploy.provision.wanted import Wanted, steps
from edge.deploy.provision.wheels import WheelSet, gather_wheels, read_wheels
from edge.errors import DeployError

__all__ = ["Provisioned", "provision", "undo"]

_UNPACKED = 4  # wheels and what they unpack to, in lengths of the wheels
_ROOM_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """What was changed, or would be."""

    changes: tuple[str, ...]
    is_applied: bool


def provision(
    shell: AdminShell,
    wanted: Wanted,
    *,
    wheels: Path | None,
    is_cpu_only: bool,
    is_plan: bool,
    tell: Callable[[str], None],
) -> Provisioned:
    """Make a device of the machine behind `shell`, or say what that would change; `tell` hears each phase.

    A Jetson gets what its GPU is used by, unless `is_cpu_only`.

    Raises:
        DeployError: `request.*`, `transfer.*`, `preflight.*`; `verify.provision` if something of somebody else's is
            in the way: then nothing has been changed.
    """
    host = shell.address.host
    tell(f"{host}: facts")
    facts = shell.facts()
    _require_keys(wanted, facts, host)
    tell(f"{host}: wheels for {facts.architecture}, Python {facts.python[0]}.{facts.python[1]}")
    extra = None if is_cpu_only else extra_of(facts)
    chosen = read_wheels(wheels, facts, extra=extra) if wheels is not None else gather_wheels(facts, extra=extra)
    plan = _ask(shell, {"steps": steps(wanted, facts, chosen, folder=None), "is_plan": True})
    if is_plan or not plan.changes:
        return plan
    return _apply(shell, wanted, facts, chosen, plan, tell)


def undo(shell: AdminShell, *, is_plan: bool, purge: bool) -> Provisioned:
    """Take back what provision wrote; data stays unless `purge`.

    Raises:
        DeployError: as `provision`.
    """
    return _ask(shell, {"is_undo": True, "is_plan": is_plan, "purge": purge, "steps": []})


def _apply(
    shell: AdminShell,
    wanted: Wanted,
    facts: ProvisionFacts,
    wheels: WheelSet,
    plan: Provisioned,
    tell: Callable[[str], None],
) -> Provisioned:
    host, place = shell.address.host, None
    if any(change.startswith("install ") for change in plan.changes):
        _require_room(wheels, facts, host)
        missing = wheels.missing(facts.wheels)
        tell(f"{host}: upload of {wheels.missing_bytes(facts.wheels) / 1e6:.1f} MB")
        place = shell.upload(missing) if missing else None
    try:
        tell(f"{host}: {len(plan.changes)} changes")
        done = _ask(shell, {"steps": steps(wanted, facts, wheels, folder=place), "is_plan": False})
    finally:
        if place is not None:
            shell.discard(place)
    return replace(done, is_applied=True)


def _ask(shell: AdminShell, request: dict[str, Any]) -> Provisioned:
    answer = shell.steps({"is_undo": False, "purge": False, **request})
    if answer["conflicts"]:
        raise DeployError(
            "verify.provision",
            f"{shell.address.host}: {'; '.join(answer['conflicts'])}",
            hint="provision overwrites nothing that it did not write",
            evidence={"conflicts": answer["conflicts"]},
        )
    if answer["failed"]:
        raise DeployError("device.provision", f"{shell.address.host}: {answer['failed']}")
    return Provisioned(changes=tuple(answer["changes"]), is_applied=answer["applied"])


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


def _require_room(wheels: WheelSet, facts: ProvisionFacts, host: str) -> None:
    needed = _UNPACKED * wheels.length_bytes + _ROOM_BYTES
    if facts.free_bytes < needed:
        raise DeployError(
            "preflight.space",
            f"{host} has {facts.free_bytes / 1e6:.0f} MB free where /opt is, expected {needed / 1e6:.0f} MB",
            hint="make room there",
            evidence={"free_bytes": facts.free_bytes, "needed_bytes": needed},
        )
