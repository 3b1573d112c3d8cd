"""Whether taking keys away would take this machine's own: nobody locks himself out without saying so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge.deploy.provision.keys import PublicKey, read_public_key
from edge.deploy.provision.wanted import KEYS, SIGNERS, Wanted
from edge.errors import DeployError
from edge.transport.ssh_command import SshAddress, ssh_command

__all__ = ["own_keys", "require_way_in"]

_DEADLINE_S = 10.0


def own_keys(pusher: SshAddress) -> frozenset[str]:
    """Return the keys, in base64, that ssh here would offer to push with: its files' and its agent's."""
    found: set[str] = set()
    for line in _said(_resolved(pusher)).splitlines():
        word, _, path = line.partition(" ")
        if word == "identityfile":
            found |= _base64_of(Path(f"{path}.pub").expanduser())
    for line in _said(["ssh-add", "-L"]).splitlines():
        found |= set(line.split()[1:2])
    return frozenset(found)


def require_way_in(wanted: Wanted, changes: Iterable[str], mine: frozenset[str], host: str) -> None:
    """Hold what a plan takes away against this machine's own keys.

    Raises:
        DeployError: `request.lockout`, if a file loses one of them and none of those that stay is one.
    """
    if wanted.may_lock_out:
        return
    stays: Sequence[tuple[str, list[PublicKey]]] = (
        (KEYS, list(wanted.keys)),
        (SIGNERS, [key for key, _ in wanted.signers]),
    )
    for path, keys in stays:
        lost = [line for line in changes if line.startswith(f"take a line from {path}") and mine & set(line.split())]
        if lost and not any(key.base64 in mine for key in keys):
            raise DeployError(
                "request.lockout",
                f"{host}: --exactly takes the key that this machine uses from {path}: {lost[0].split()[-1]}",
                hint="name it by --key and --signer, too, or say --lock-me-out",
            )


def _resolved(pusher: SshAddress) -> list[str]:
    command = ssh_command(pusher, ())
    return [command[0], "-G", *command[1:]]


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
