"""Frames over the system's OpenSSH client."""

from __future__ import annotations

from collections.abc import Sequence

from edge.errors import DeployError
from edge.transport.child import ChildChannel
from edge.transport.ssh_command import SshAddress, ssh_command

__all__ = ["AGENT", "ASK_INSTALLED", "SshChannel"]

AGENT = ("edge-runtime", "agent")
ASK_INSTALLED = "--installed"
"""Of an agent: that which provision installed, whatever the release that serves has brought."""
_SSH_FAILED = 255
_NO_SUCH_COMMAND = 127

# What OpenSSH prints (its texts are not translated), the code, and what to do. The first that is found counts.
_REASONS = (
    ("Host key verification failed", "transfer.ssh.hostkey"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "transfer.ssh.hostkey"),
    ("No ED25519 host key is known", "transfer.ssh.hostkey"),
    ("Permission denied", "transfer.ssh.denied"),
    ("Too many authentication failures", "transfer.ssh.denied"),
    ("Could not resolve hostname", "transfer.ssh.unreachable"),
    ("No route to host", "transfer.ssh.unreachable"),
    ("Network is unreachable", "transfer.ssh.unreachable"),
    ("Connection refused", "transfer.ssh.refused"),
    ("timed out", "transfer.ssh.timeout"),
    ("not responding", "transfer.ssh.timeout"),
)
_HINTS = {
    "transfer.ssh.hostkey": "check the device's key, then add it: ssh-keyscan {host} >> ~/.ssh/known_hosts",
    "transfer.ssh.denied": "the device does not know your key for this user; run: edge-deploy provision {host}",
    "transfer.ssh.unreachable": "check the name and the network: ssh {host}",
    "transfer.ssh.refused": "no SSH server answers there; check that sshd runs, and the port",
    "transfer.ssh.timeout": "the device does not answer; check that it is on and reachable: ping {host}",
    "transfer.ssh": "try it by hand: ssh {host}",
}


class SshChannel(ChildChannel):
    """A `Channel` to a command on another machine; the connection ends with it.

    Raises (from `send` and `receive`):
        DeployError: `transfer.ssh.*` with what OpenSSH said, `transfer.ssh.command` if the command is not there.
    """

    def __init__(self, address: SshAddress, *, remote: Sequence[str] = AGENT, options: Sequence[str] = ()) -> None:
        self._host = address.host
        super().__init__(ssh_command(address, remote, options=options), ending=self._why)

    def _why(self, status: int | None, lines: Sequence[str]) -> DeployError | None:
        if status == _SSH_FAILED:
            return _ssh_failed(self._host, lines)
        if status == _NO_SUCH_COMMAND:
            return DeployError(
                "transfer.ssh.command",
                f"{self._host}: edge-runtime is not installed there",
                hint=f"run: edge-deploy provision {self._host}",
                evidence={"stderr": list(lines[-5:])},
            )
        return None


def _ssh_failed(host: str, lines: Sequence[str]) -> DeployError:
    said = "\n".join(lines)
    code = next((code for text, code in _REASONS if text in said), "transfer.ssh")
    reason = lines[-1] if lines else "ssh ended with 255 and said nothing"
    return DeployError(
        code, f"{host}: {reason}", hint=_HINTS[code].format(host=host), evidence={"stderr": list(lines[-5:])}
    )
