"""A provision or a proof of any target of an inventory, over its administrator's OpenSSH."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from edge.config.targets import Inventory, Target
from edge.delivery.link import Interrupted
from edge.delivery.outcome import NOTE, Event, OnEvent, Outcome, Report
from edge.delivery.verdict import failed_by, interrupted
from edge.deploy.fleet.ask import ask_one
from edge.deploy.fleet.over_ssh import address_of
from edge.deploy.fleet.rollout import PushOne
from edge.deploy.provision.admin import AdminShell, run_until
from edge.deploy.provision.provision import PLAN, provision, undo_provision
from edge.deploy.provision.wanted import Wanted
from edge.deploy.provision.wheels import WheelSource
from edge.errors import ConfigError, DeployError
from edge.roofline.proof import Proof, decode_proof
from edge.transport.ssh import SshAddress, ssh_command, ssh_failure
from edge.untrusted import cleaned

__all__ = ["REMOTE", "Admins", "prove_over_ssh", "provision_over_ssh", "undo_over_ssh"]


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
            proof = _ask(admins, target, stop)
            keep(target, proof)
            return msgspec.to_builtins(proof)

        return ask_one(target, on_event, "prove", ask, failed=partial(failed_by, target=target.name))

    return one


def _ask(admins: Admins, target: Target, stop: threading.Event) -> Proof:
    address = admins.shell(target, stop).address
    command = ssh_command(address, [shlex.quote(word) for word in REMOTE])
    done = run_until(command, b"", host=target.name, timeout_s=_TIMEOUT_S, stop=stop)
    lines = [cleaned(line) for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if (failure := ssh_failure(address.host, done.returncode, lines, is_admin=True)) is not None:
        raise failure
    try:
        return decode_proof(done.stdout, target.name)
    except ConfigError as error:
        said = lines[-1][:300] if lines and done.returncode not in _CODES else error.problem
        hint = f"run: edge-deploy provision {target.name}, which brings the one of here"
        raise DeployError("transfer.protocol", f"{target.name} has given no proof: {said}", hint=hint) from None
