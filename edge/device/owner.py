"""Whose a device's state is, and how root becomes that user before it touches any of it."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from edge.device.layout import Layout

__all__ = ["become_owner", "become_owner_of"]


def become_owner(layout: Layout) -> None:
    """Give up root, for good, for the user to whom the state of this device belongs; OSError as `become_owner_of`."""
    become_owner_of(layout.var)


def become_owner_of(folder: Path) -> None:
    """Give up root, for good, for the user to whom a folder belongs.

    What root left there, such as a lock or a state, that user could not write afterwards. Does nothing for others than
    root, nor where there is no such folder yet or it is root's own.

    Raises:
        OSError: if root may not become another user here; nothing was touched then.
    """
    if os.geteuid() != 0:
        return
    try:
        status = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if status.st_uid == 0 or not stat.S_ISDIR(status.st_mode):
        return
    try:
        user = pwd.getpwuid(status.st_uid)
        os.initgroups(user.pw_name, user.pw_gid)
        gid = user.pw_gid
    except KeyError:
        os.setgroups([])
        gid = status.st_gid
    os.setresgid(gid, gid, gid)
    os.setresuid(status.st_uid, status.st_uid, status.st_uid)
