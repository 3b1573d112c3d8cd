"""Runs `ssh-keygen`: always with a deadline, in UTC, and judged by its exit status alone."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from edge.errors import DeployError

__all__ = ["RanSshKeygen", "run_ssh_keygen"]


@dataclass(frozen=True, slots=True)
class RanSshKeygen:
    """`complaint` is for people: its wording changes with the version."""

    is_ok: bool
    output: bytes
    complaint: str


def run_ssh_keygen(*arguments: str, content: bytes = b"", deadline_s: float = 10.0) -> RanSshKeygen:
    """Return what `ssh-keygen ARGUMENTS` said of `content`, which it reads on its standard input.

    Raises:
        DeployError: `device.ssh-keygen`, if it is not installed or has not ended after `deadline_s`.
    """
    # Times without a zone, in allowed signers and in verify-time, are local ones to ssh-keygen; a device is not.
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    try:
        ran = subprocess.run(
            ["ssh-keygen", *arguments],
            input=content,
            capture_output=True,
            timeout=deadline_s,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise DeployError(
            "device.ssh-keygen", "ssh-keygen is not installed", hint="install OpenSSH's client (openssh-client)"
        ) from None
    except subprocess.TimeoutExpired:
        raise DeployError(
            "device.ssh-keygen",
            f"ssh-keygen {' '.join(arguments[:2])} has not ended within {deadline_s:g} s",
            hint="it may wait for a passphrase or for the touch of a security key",
        ) from None
    return RanSshKeygen(ran.returncode == 0, ran.stdout, ran.stderr.decode("utf-8", "replace").strip()[:500])
