"""Who reads from the network is never root."""

from __future__ import annotations

import os
import pwd

from edge.errors import DeployError

__all__ = ["become"]


def become(name: str) -> None:
    """Give up root, for good, for the user `name`.

    Raises:
        DeployError: `device.settings`, if there is none of that name.
        OSError: if root may not become another user here.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        hint = "edge-deploy provision makes it"
        raise DeployError(
            "device.settings", f"there is no user {name}, as whom releases are fetched", hint=hint
        ) from None
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
