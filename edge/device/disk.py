"""What the operating system says about the disk, as an error with a code and a fix."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from edge.errors import DeployError
from edge.reading import UnfitFile

__all__ = ["disk_error", "typed"]

P = ParamSpec("P")
R = TypeVar("R")

_FREE = "free some space in /var/lib/edge-deploy (edge-deploy push collects garbage first), then push again"
_MEANING = {
    errno.ENOSPC: ("device.disk.space", _FREE),
    errno.EFBIG: ("device.disk.space", _FREE),
    errno.EDQUOT: ("device.disk.quota", "raise the quota of the user edge-deploy, then push again"),
    errno.EROFS: ("device.disk.readonly", "look for file-system errors in the device's journal; remount or reboot"),
    errno.EACCES: ("device.disk.permission", "run: edge-deploy provision, which sets owners and modes"),
    errno.EPERM: ("device.disk.permission", "run: edge-deploy provision, which sets owners and modes"),
}
_UNFIT = ("device.file", "look at it on the device, remove it, and ask who may write there; then push again")
_OTHERWISE = ("device.disk.io", "look for disk errors in the device's journal, then push again")


def disk_error(error: OSError) -> DeployError:
    """Return the error that a person can act on; its evidence keeps the number and the path."""
    code, hint = _UNFIT if isinstance(error, UnfitFile) else _MEANING.get(error.errno or 0, _OTHERWISE)
    name = errno.errorcode.get(error.errno or 0, "?")
    what = error.strerror or str(error) or "unknown"
    return DeployError(
        code,
        f"{error.filename or 'the disk'}: {what} ({name})",
        hint=hint,
        evidence={"errno": name, "path": str(error.filename or "")},
    )


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Let `function` raise `device.disk.*` where the operating system raised OSError."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise disk_error(error) from error

    return checked
