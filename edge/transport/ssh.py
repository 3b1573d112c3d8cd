"""Frames over the system's OpenSSH client, which honours the user's ssh_config, keys, agents and jump hosts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import DeployError
from edge.transport.channel import ChildChannel

__all__ = ["AGENT", "SSH_FAILED", "SshAddress", "SshChannel", "ssh_command", "ssh_failed", "ssh_failure"]

# Known hosts only, no interactive question, a dead link is noticed within 15 s, and no agent is ever lent.
_ALWAYS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ConnectTimeout=10",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
)
AGENT = ("edge-runtime", "agent")
SSH_FAILED = 255
_NO_SUCH_COMMAND = 127

_CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
_MANY_KEYS = "Too many authentication failures"
# What OpenSSH prints (its texts are not translated), and the code. The first that is found counts.
_REASONS = (
    (_CHANGED, "transfer.ssh.hostkey"),
    ("host key is known for", "transfer.ssh.hostkey"),
    ("Host key verification failed", "transfer.ssh.hostkey"),
    ("Permission denied", "transfer.ssh.denied"),
    (_MANY_KEYS, "transfer.ssh.denied"),
    ("Could not resolve hostname", "transfer.ssh.unreachable"),
    ("No route to host", "transfer.ssh.unreachable"),
    ("Network is unreachable", "transfer.ssh.unreachable"),
    ("Connection refused", "transfer.ssh.refused"),
    ("timed out", "transfer.ssh.timeout"),
    ("not responding", "transfer.ssh.timeout"),
)
_HINTS = {
    _CHANGED: "find out whether the device was installed anew, or another one answers; only then: "
    "ssh-keygen -R NAME -f FILE, with what {ssh} shows (Host key for NAME has changed, Offending key in FILE); log in "
    "once and compare the key that it shows",
    "transfer.ssh.hostkey": "log in once and compare the key that it shows: {ssh}",
    _MANY_KEYS: "ssh offers more keys than the device tries; name the right one in ssh_config: IdentityFile, with "
    "IdentitiesOnly yes",
    "transfer.ssh.denied": "let your key in: edge-deploy provision {host} --key ~/.ssh/id_ed25519.pub (or the key that "
    "ssh offers); one with a passphrase has to be in ssh-agent; AllowUsers and AllowGroups in its sshd_config, "
    "if set, have to name edge-deploy",
    "transfer.ssh.unreachable": "check the name and the network: {ssh}",
    "transfer.ssh.refused": "no SSH server answers there; check that sshd runs, and the port",
    "transfer.ssh.timeout": "the device does not answer; check that it is on and reachable: {ssh}",
    "transfer.ssh": "try it by hand: {ssh}",
}
_ADMIN_DENIED = "{ssh} has to work without a question; --admin USER is another login, ssh-add takes a passphrase"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """The address of a device: `host` is a name or a Host of ssh_config; what is None is as ssh_config says."""

    host: str
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        for name in (self.host, self.user or "x"):
            if not name or name.startswith("-") or any(c.isspace() for c in name):
                raise ValueError(f"{name!r} cannot be given to ssh as a host or a user")


def ssh_command(address: SshAddress, remote: Sequence[str], *, options: Sequence[str] = ()) -> list[str]:
    """Return the arguments that run `remote` (already quoted for a shell, word by word) at `address`.

    `options` are further `Key=value` of ssh_config; they come first, so they win.
    """
    given = [part for option in (*options, *_ALWAYS) for part in ("-o", option)]
    if address.config is not None:
        given += ["-F", str(address.config)]
    if address.port is not None:
        given += ["-p", str(address.port)]
    if address.identity is not None:
        given += ["-i", str(address.identity), "-o", "IdentitiesOnly=yes"]
    if address.user is not None:
        given += ["-l", address.user]
    return ["ssh", "-T", *given, "--", address.host, *remote]


class SshChannel(ChildChannel):
    """A `Channel` to a command on another machine, which ends with it.

    `send` and `receive` raise DeployError: `transfer.ssh.*` with what OpenSSH said, `transfer.ssh.command` if it is not
    there.
    """

    def __init__(self, address: SshAddress, *, remote: Sequence[str] = AGENT, options: Sequence[str] = ()) -> None:
        command = ssh_command(address, remote, options=options)
        super().__init__(command, ending=lambda status, lines: ssh_failure(address, status, lines))


def ssh_failure(
    address: SshAddress, status: int | None, lines: Sequence[str], *, is_admin: bool = False
) -> DeployError | None:
    """Return why a command of ours did not run there, by ssh's exit status and last lines; None: it has run."""
    if status == SSH_FAILED:
        return ssh_failed(address, lines, is_admin=is_admin)
    if status == _NO_SUCH_COMMAND:
        return DeployError(
            "transfer.ssh.command",
            f"{address.host}: edge-runtime is not installed there",
            hint=f"run: edge-deploy provision {address.host}",
            evidence={"stderr": list(lines[-5:])},
        )
    return None


def ssh_failed(address: SshAddress, lines: Sequence[str], *, is_admin: bool = False) -> DeployError:
    """Return why ssh has ended with `SSH_FAILED`; `is_admin`: it was the login of a person, which no --key mends."""
    last = lines[-1] if lines else "ssh ended with 255 and said nothing"
    found = ((text, code, line) for text, code in _REASONS for line in lines if text in line)
    text, code, reason = next(found, ("", "transfer.ssh", last))
    usual = _ADMIN_DENIED if is_admin and code == "transfer.ssh.denied" else _HINTS[code]
    return DeployError(
        code,
        f"{address.host}: {reason.strip('@ ')}",
        hint=_HINTS.get(text, usual).format(host=address.host, ssh=_by_hand(address, is_admin=is_admin)),
        evidence={"stderr": list(lines[-5:])},
    )


def _by_hand(address: SshAddress, *, is_admin: bool) -> str:
    """Return what a person types to get there; as themselves, because the user of a push has no shell."""
    given = [] if address.config is None else ["-F", str(address.config)]
    given += [] if address.port is None else ["-p", str(address.port)]
    given += [] if address.user is None or not is_admin else ["-l", address.user]
    return shlex.join(["ssh", *given, address.host])
