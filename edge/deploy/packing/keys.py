"""The key that signs when none is named: the one that ssh would use."""

from __future__ import annotations

from pathlib import Path

from edge.errors import DeployError

__all__ = ["find_key"]

_NAMES = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


def find_key(given: Path | None) -> Path:
    """Return `given`, or the first of the usual keys in ~/.ssh.

    Raises:
        DeployError: `bundle.key`, if there is none.
    """
    if given is not None:
        if not given.is_file():
            raise DeployError("bundle.key", f"{given}: no such file", hint="name an SSH key, private or public")
        return given
    folder = Path.home() / ".ssh"
    for name in _NAMES:
        for path in (folder / name, folder / f"{name}.pub"):  # the public half alone: the agent has the other
            if path.is_file():
                return path
    raise DeployError(
        "bundle.key",
        f"no SSH key in {folder} ({', '.join(_NAMES)}), and a bundle is always signed",
        hint="name one with --key, or make one: ssh-keygen -t ed25519",
    )
