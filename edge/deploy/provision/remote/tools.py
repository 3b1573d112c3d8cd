"""What all steps share."""

from __future__ import annotations

import grp
import pwd
import subprocess
from typing import Any

__all__ = ["Conflict", "Record", "has_group", "has_user", "run"]

Record = dict[str, Any]


class Conflict(Exception):  # noqa: N818 - not a failure of the program: a reason to change nothing
    """Something is there that provision did not write."""


def run(command: list[str]) -> None:
    """Run a command.

    Raises:
        Conflict: with its last words, if it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Conflict(f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}")


def has_user(name: str) -> bool:
    """Return whether there is such a user."""
    return any(user.pw_name == name for user in pwd.getpwall())


def has_group(name: str) -> bool:
    """Return whether there is such a group."""
    return any(group.gr_name == name for group in grp.getgrall())
