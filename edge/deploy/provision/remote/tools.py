"""Small file work that all steps share."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = [
    "Conflict",
    "Record",
    "empty",
    "has_group",
    "has_user",
    "is_bare",
    "put",
    "remove_bare",
    "run",
    "sha256",
    "sync",
]

Record = dict[str, Any]


class Conflict(Exception):  # noqa: N818 - not a failure of the program: a reason to change nothing
    """Something is there that provision did not write."""


def put(path: str, content: bytes, mode: int, ids: tuple[int, int], test: Sequence[str] | None) -> None:
    """Write a file beside its place, let `test` accept it, move it there; durable when this returns."""
    partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.partial")
    if os.path.lexists(partial):
        os.unlink(partial)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fchown(descriptor, *ids)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    try:
        if test:
            run([*test, partial])
        os.replace(partial, path)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)
    sync(os.path.dirname(path))


def sync(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def run(command: list[str]) -> None:
    """Run a command.

    Raises:
        Conflict: with its last words, if it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Conflict(f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}")


def sha256(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def has_user(name: str) -> bool:
    """Return whether there is such a user."""
    return any(user.pw_name == name for user in pwd.getpwall())


def has_group(name: str) -> bool:
    """Return whether there is such a group."""
    return any(group.gr_name == name for group in grp.getgrall())


def is_bare(path: str) -> bool:
    """Return whether a folder holds folders at most."""
    return not any(files for _, _, files in os.walk(path))


def empty(path: str) -> None:
    """Remove all that is in a folder."""
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        if os.path.isdir(inner) and not os.path.islink(inner):
            shutil.rmtree(inner)
        else:
            os.unlink(inner)


def remove_bare(path: str) -> bool:
    """Remove an empty folder; return whether it was one."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True
