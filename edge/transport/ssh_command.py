"""Command lines of the system's OpenSSH client, which honours the user's ssh_config, keys, agents and jump hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SshAddress", "ssh_command"]

# Known hosts only, no question that nobody answers, a dead link is noticed within 15 s, and no agent is ever lent.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """Whom to call: `host` is a name or a Host of ssh_config; what is None is as ssh_config says."""

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
