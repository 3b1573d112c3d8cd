"""One device: its facts, the steps, and either the plan or the change."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge.delivery.outcome import DONE, PLANNED, UPLOAD, Outcome, Report
from edge.deploy.provision.admin import AdminShell, StepsAnswer
from edge.deploy.provision.facts import ProvisionFacts, is_jetson, pycuda_wheel
from edge.deploy.provision.keys import read_public_key
from edge.deploy.provision.wanted import DEVICE_TOML, KEYS, SIGNERS, Wanted, steps
from edge.deploy.provision.wheels import WheelSet, WheelSource
from edge.errors import DeployError
from edge.media.gstreamer.binding import APT
from edge.transport.ssh import SshAddress, ssh_command
from edge.untrusted import cleaned
from edge.version import __version__, is_later

__all__ = ["BROUGHT", "PLAN", "provision", "undo_provision"]

_DEADLINE_S = 10.0


def own_keys(pusher: SshAddress) -> frozenset[str]:
    """Return the keys, in base64, that ssh here would offer to push with: its files' and its agent's."""
    found: set[str] = set()
    command = ssh_command(pusher, ())
    for line in _said([command[0], "-G", *command[1:]]).splitlines():
        word, _, path = line.partition(" ")
        if word == "identityfile":
            found |= _base64_of(Path(f"{path}.pub").expanduser())
    for line in _said(["ssh-add", "-L"]).splitlines():
        found |= set(line.split()[1:2])
    return frozenset(found)


def require_way_in(wanted: Wanted, changes: Iterable[str], mine: frozenset[str], host: str) -> None:
    """Raise DeployError `request.lockout`, if a file loses one of this machine's keys and none that stays is one."""
    if wanted.may_lock_out:
        return
    for path, keys in ((KEYS, wanted.keys), (SIGNERS, [key for key, _ in wanted.signers])):
        lost = [line for line in changes if line.startswith(f"take a line from {path}") and mine & set(line.split())]
        if lost and not any(key.base64 in mine for key in keys):
            raise DeployError(
                "request.lockout",
                f"{host}: --exactly takes the key that this machine uses from {path}: {lost[0].split()[-1]}",
                hint="name it by --key and --signer, too, or say --lock-me-out",
            )


def _base64_of(path: Path) -> set[str]:
    try:
        return {read_public_key(path).base64}
    except DeployError:  # ssh has a list of names that need not be there
        return set()


def _said(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


PLAN = "plan"
"""The phase whose notes are the changes."""

BROUGHT = "software"
"""The phase whose notes say what of the software that releases bring cannot run over what was installed."""

_LATER = {f"replace {DEVICE_TOML}": "; a new name takes effect when the service starts again (docs/fleet.md)"}
_UNPACKED = 4  # wheels and what they unpack to, in lengths of the wheels
_ROOM_BYTES = 256 * 1024**2


def provision(
    shell: AdminShell,
    wanted: Wanted,
    *,
    software: WheelSource,
    is_plan: bool,
    report: Report,
    pusher: SshAddress | None = None,
) -> Outcome:
    """Make a device of the machine behind `shell`, or say what that would change; `pusher`: who pushes from here.

    The evidence has the `changes`, made or planned, and what is `told`: present problems that stop nothing.
    Raises DeployError `request.*`, `transfer.*`, `preflight.*`; `verify.provision` if a file of another owner is in the
    way: then nothing has been changed. Interrupted: once the shell's `stop` is set.
    """
    host = shell.address.host
    with report.phase("facts"):
        facts = shell.facts()
        _require_keys(wanted, facts, host)
        if facts.made_with is not None and is_later(facts.made_with):
            report.note(
                "facts", f"its release was made with edge-deploy {facts.made_with}, later than this {__version__}"
            )
        if not facts.has_video:
            report.note("facts", f"nothing decodes cameras there yet: sudo {APT}")
    with report.phase("wheels"):
        report.note("wheels", f"for {facts.architecture}, Python {facts.python[0]}.{facts.python[1]}")
        if is_jetson(facts) and pycuda_wheel(facts, software.folder) is None:
            report.note("wheels", "no wheel of pycuda was made here for it: its GPU is used without (docs/engines.md)")
        chosen = software.wheels(facts)
        for name in chosen.made_here:
            report.note("wheels", f"{name} was made on this side, so no lock names it: SHA-256 {chosen.digests[name]}")
    with report.phase(PLAN):
        plan = _ask(shell, {"steps": steps(wanted, facts, chosen, folder=None), "is_plan": True})
        for change in plan.changes:
            report.note(PLAN, change)
        if wanted.name is None and any(change.endswith(DEVICE_TOML) for change in plan.changes):
            report.note("facts", f"its name becomes {facts.name}; --name gives it another")
        _require_revocations(wanted, facts, host)
        if wanted.is_exact and pusher is not None:
            require_way_in(wanted, plan.changes, own_keys(pusher), host)
    if is_plan or not plan.changes:
        return _outcome(report.target, plan)
    return _apply(shell, wanted, facts, chosen, plan, report)


def undo_provision(shell: AdminShell, *, is_plan: bool, purge: bool, report: Report) -> Outcome:
    """Take back what provision wrote; data stays unless `purge`. Raises as `provision`."""
    with report.phase(PLAN):
        done = _ask(shell, {"is_undo": True, "is_plan": is_plan, "purge": purge, "steps": []})
        for change in done.changes:
            report.note(PLAN, change)
    return _outcome(report.target, done)


def _apply(
    shell: AdminShell, wanted: Wanted, facts: ProvisionFacts, wheels: WheelSet, plan: StepsAnswer, report: Report
) -> Outcome:
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
    return _outcome(report.target, done, bytes_sent=sent)


def _outcome(target: str, done: StepsAnswer, *, bytes_sent: int = 0) -> Outcome:
    count, is_planned = len(done.changes), bool(done.changes) and not done.applied
    return Outcome(
        target=target,
        release=None,
        result="unchanged" if not count else "planned" if is_planned else "changed",
        exit_code=PLANNED if is_planned else DONE,
        problem=f"{count} change{'' if count == 1 else 's'}" if count else "nothing to change",
        evidence={"changes": list(done.changes), "told": list(done.told)},
        bytes_sent=bytes_sent,
    )


def _ask(shell: AdminShell, request: dict[str, Any]) -> StepsAnswer:
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
    return replace(answer, changes=tuple(f"{one}{_LATER.get(one, '')}" for one in answer.changes))


def _require_keys(wanted: Wanted, facts: ProvisionFacts, host: str) -> None:
    for option, is_given, is_there in (
        ("--key", bool(wanted.keys), facts.has_key),
        ("--signer", bool(wanted.signers), facts.has_signer),
    ):
        if not is_given and not is_there:
            raise DeployError(
                "request.key",
                f"{host} knows no key yet that may push: {option} is missing",
                hint=f"give your public key: {option} ~/.ssh/id_ed25519.pub",
            )


def _require_revocations(wanted: Wanted, facts: ProvisionFacts, host: str) -> None:
    """Hold that no key counts again because an older list was at hand."""
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
