"""Provision and proof of devices over their administrator's OpenSSH: facts, steps, either the plan or the change."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from edge.bundle.sign import RELEASE
from edge.bundle.statement import decode_chain, names_signer
from edge.config.targets import Inventory, Target
from edge.delivery.link import Interrupted
from edge.delivery.outcome import DONE, NOTE, PLANNED, UPLOAD, Event, OnEvent, Outcome, Report
from edge.delivery.verdict import failed_by, interrupted
from edge.deploy.fleet.ask import ask_one
from edge.deploy.fleet.over_ssh import address_of
from edge.deploy.fleet.rollout import PushOne
from edge.deploy.provision.admin import AdminShell, StepsAnswer, run_until
from edge.deploy.provision.facts import WHEEL_STORE, ProvisionFacts, is_jetson, pycuda_wheel
from edge.deploy.provision.keys import read_public_key
from edge.deploy.provision.wanted import DEVICE_TOML, KEYS, REGISTRY_LOGIN, SIGNERS, Wanted, steps
from edge.deploy.provision.wheels import WheelSet, WheelSource
from edge.errors import ConfigError, DeployError
from edge.media.gstreamer.binding import APT
from edge.roofline.proof import Proof, decode_proof
from edge.transport.ssh import SshAddress, ssh_command, ssh_failure
from edge.untrusted import cleaned
from edge.version import __version__, is_later

__all__ = [
    "BROUGHT",
    "PLAN",
    "REMOTE",
    "Admins",
    "prove_over_ssh",
    "provision",
    "provision_over_ssh",
    "undo_over_ssh",
    "undo_provision",
]

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

_LATER = {
    f"replace {DEVICE_TOML}": "; a new name takes effect when the service starts again, which has to wait for the end "
    "of a trial (docs/fleet.md)"
}
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
        _note_facts(wanted, facts, report)
    with report.phase("wheels"):
        report.note("wheels", f"for {facts.architecture}, Python {facts.python[0]}.{facts.python[1]}")
        if is_jetson(facts) and pycuda_wheel(facts) is None:
            report.note("wheels", "no wheel of pycuda was made here for it: its GPU is used without (docs/engines.md)")
        chosen = software.wheels(facts)
        for name in chosen.made_here:
            report.note("wheels", f"{name} was made on this side, so no lock names it: SHA-256 {chosen.digests[name]}")
    with report.phase(PLAN):
        plan = _ask(shell, {"steps": steps(wanted, facts, chosen), "is_plan": True})
        for change in plan.changes:
            report.note(PLAN, change)
        if (
            wanted.name is None
            and wanted.usual_name is None
            and any(change.endswith(DEVICE_TOML) for change in plan.changes)
        ):
            report.note("facts", f"its name becomes {facts.name}; --name gives it another")
        _require_revocations(wanted, facts, host)
        if wanted.is_exact and pusher is not None:
            require_way_in(wanted, plan.changes, own_keys(pusher), host)
        if _installs(plan):
            _require_room(chosen, facts, host)
    if is_plan or not plan.changes:
        return _outcome(report.target, plan)
    return _apply(shell, wanted, facts, chosen, plan, report)


def _note_facts(wanted: Wanted, facts: ProvisionFacts, report: Report) -> None:
    if facts.made_with is not None and is_later(facts.made_with):
        report.note("facts", f"its release was made with edge-deploy {facts.made_with}, later than this {__version__}")
    if not facts.has_video:
        report.note("facts", f"nothing decodes cameras there yet: sudo {APT}")
    if wanted.pull is not None and REGISTRY_LOGIN not in facts.credentials:
        report.note("facts", f"no {REGISTRY_LOGIN} is there, so its registry has to let all read (docs/fleet.md)")


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
    host, sent = shell.address.host, 0
    if _installs(plan):
        missing = wheels.missing(facts.wheels)
        if missing:
            sent = wheels.missing_bytes(facts.wheels)
            with report.phase(UPLOAD, total=sent):
                stocked = shell.stock(WHEEL_STORE, missing, on_bytes=lambda done: report.far(UPLOAD, done, sent))
                _require_done(stocked, host)
    with report.phase("apply"):
        done = _ask(shell, {"steps": steps(wanted, facts, wheels), "is_plan": False})
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
    _require_done(answer, shell.address.host)
    return replace(answer, changes=tuple(f"{one}{_LATER.get(one, '')}" for one in answer.changes))


def _require_done(answer: StepsAnswer, host: str) -> None:
    if answer.failed:
        raise DeployError("device.provision", f"{host}: {answer.failed}")


def _require_keys(wanted: Wanted, facts: ProvisionFacts, host: str) -> None:
    missing, given = [], []
    if not wanted.keys and not facts.has_key:
        missing.append("no key yet that may push: --key is missing")
        given.append("--key ~/.ssh/id_ed25519.pub")
    if not wanted.signers and wanted.trust is None and not facts.has_signer:
        missing.append("no signer yet: --signer or --trust is missing")
        given.append("--signer ~/.ssh/id_ed25519.pub, or the signed list of signers: --trust trust.json")
    if missing:
        raise _no_key(f"{host} knows {'; '.join(missing)}", ", ".join(given))
    if facts.has_signer or wanted.trust is None:
        return
    signers = decode_chain(wanted.trust[1].encode())[-1].document.signers
    if not names_signer("\n".join(signers), RELEASE):  # no other list counts beside it (docs/adr/0016)
        why = "the document of --trust names none whose releases count, and --signer does not count beside it"
        raise _no_key(f"{host} knows no signer yet: {why}", "edge-deploy trust sign --signer KEY.pub")


def _no_key(problem: str, given: str) -> DeployError:
    return DeployError("request.key", problem, hint=f"give your public key: {given}")


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


def _installs(plan: StepsAnswer) -> bool:
    return any(change.startswith("install ") for change in plan.changes)


def _require_room(wheels: WheelSet, facts: ProvisionFacts, host: str) -> None:
    needed = _UNPACKED * wheels.length_bytes + _ROOM_BYTES
    if facts.free_bytes < needed:
        raise DeployError(
            "preflight.space",
            f"{host} has {facts.free_bytes / 1e6:.0f} MB free where /opt is, expected {needed / 1e6:.0f} MB",
            hint="make room there",
            evidence={"free_bytes": facts.free_bytes, "needed_bytes": needed},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admins:
    """The administrators: `user`, else as ssh_config says (an inventory's `user` and `identity` are those of a push).

    `password_of` returns sudo's password on a target, None: sudo has to work without; or raises why it is not known.
    ValueError if `user` cannot be given to ssh.
    """

    inventory: Inventory
    user: str | None = None
    ssh_config: Path | None = None
    password_of: Callable[[Target], str | None] = lambda target: None

    def __post_init__(self) -> None:
        SshAddress(host="any", user=self.user)

    def shell(self, target: Target, stop: threading.Event) -> AdminShell:
        """No connection is opened yet."""
        stated = None if target.name in self.inventory.targets else target.user
        address = SshAddress(
            host=target.host, user=self.user or stated, port=target.port, config=self.ssh_config or target.ssh_config
        )
        return AdminShell(address=address, sudo_password=self.password_of(target), stop=stop)

    def pusher(self, target: Target) -> SshAddress:
        """Return how a push from here reaches a target, which the keys are held against that go."""
        found = address_of(target)
        return found if self.ssh_config is None else replace(found, config=self.ssh_config)


def provision_over_ssh(
    admins: Admins,
    wanted: Mapping[str, Wanted],
    *,
    software: WheelSource,
    is_plan: bool,
    tells_changes: bool = True,
) -> PushOne:
    """Return what provisions a target, or plans it; `changes` are in the evidence, and events if `tells_changes`."""

    def one(target: Target, report: Report, stop: threading.Event) -> Outcome:
        shell = admins.shell(target, stop)
        return provision(
            shell, wanted[target.name], software=software, is_plan=is_plan, report=report, pusher=admins.pusher(target)
        )

    return _each(one, tells_changes)


def undo_over_ssh(admins: Admins, *, is_plan: bool, purge: bool, tells_changes: bool = True) -> PushOne:
    """Return what takes back a provision of the target that it is given, or only plans it; as `provision_over_ssh`."""

    def one(target: Target, report: Report, stop: threading.Event) -> Outcome:
        return undo_provision(admins.shell(target, stop), is_plan=is_plan, purge=purge, report=report)

    return _each(one, tells_changes)


def _each(one: Callable[[Target, Report, threading.Event], Outcome], tells_changes: bool) -> PushOne:
    def do_one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        def without_changes(event: Event) -> None:
            if (event.phase, event.event) != (PLAN, NOTE):
                on_event(event)

        try:
            return one(target, Report(target.name, on_event if tells_changes else without_changes), stop)
        except Interrupted:
            return interrupted(target.name, "provision was interrupted", hint="run it again: it goes on from there")
        except DeployError as error:
            return failed_by(error, target=target.name)

    return do_one


REMOTE = ("/opt/edge/bin/edge-runtime", "prove", "--json")
"""The command that provision has installed there."""

_TIMEOUT_S = 900.0  # ten minutes of steps, each of which ends within its own time, and a slow login
_CODES = (0, 4, 10)


def prove_over_ssh(admins: Admins, keep: Callable[[Target, Proof], None]) -> PushOne:
    def one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        def ask() -> Any:
            proof = _proof_of(admins, target, stop)
            keep(target, proof)
            return msgspec.to_builtins(proof)

        return ask_one(target, on_event, "prove", ask, failed=partial(failed_by, target=target.name))

    return one


def _proof_of(admins: Admins, target: Target, stop: threading.Event) -> Proof:
    address = admins.shell(target, stop).address
    command = ssh_command(address, [shlex.quote(word) for word in REMOTE])
    done = run_until(command, (), host=target.name, timeout_s=_TIMEOUT_S, stop=stop)
    lines = [cleaned(line) for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if (failure := ssh_failure(address, done.returncode, lines, is_admin=True)) is not None:
        raise failure
    try:
        return decode_proof(done.stdout, target.name)
    except ConfigError as error:
        said = lines[-1][:300] if lines and done.returncode not in _CODES else error.problem
        hint = f"run: edge-deploy provision {target.name}, which brings the one of here"
        raise DeployError("transfer.protocol", f"{target.name} has given no proof: {said}", hint=hint) from None
