"""A proof of any target of an inventory, over its administrator's OpenSSH."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from edge.config.targets import Target
from edge.delivery.outcome import OnEvent, Outcome
from edge.delivery.verdict import failed_by
from edge.deploy.fleet.ask import ask_one
from edge.deploy.fleet.inbox import PushOne
from edge.deploy.fleet.provision import Admins
from edge.deploy.provision.process import run_until
from edge.errors import ConfigError, DeployError
from edge.roofline.proof import Proof, decode_proof
from edge.transport.ssh import ssh_command, ssh_failure
from edge.untrusted import cleaned

__all__ = ["REMOTE", "prove_over_ssh"]

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
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if (failure := ssh_failure(address.host, done.returncode, lines)) is not None:
        raise failure
    try:
        return decode_proof(done.stdout, target.name)
    except ConfigError as error:
        said = cleaned(lines[-1])[:300] if lines and done.returncode not in _CODES else error.problem
        hint = f"run: edge-deploy provision {target.name}, which brings the one of here"
        raise DeployError("transfer.protocol", f"{target.name} has given no proof: {said}", hint=hint) from None
