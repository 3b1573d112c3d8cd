"""Writing a file whole: a reader sees the old content or the new one, never a part. Standard library only.

What a push leaves on a device is written by `edge.device.durable`, whose every step is held against the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["remedy", "staged", "sync_folder", "write_whole"]

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Put `content` at `path`; after a power cut, too, there is the old file or the new one.

    Args:
        path: in a folder that is there; a link is replaced, not followed.
        mode: the rights of the new file, less the umask.

    Raises `OSError` if it cannot be written; `path` is then as it was, and nothing is left beside it.
    """
    with staged(path, content, mode=mode) as new:
        new.replace(path)


@contextlib.contextmanager
def staged(path: Path, content: bytes, *, mode: int = 0o666) -> Iterator[Path]:
    """Yield a new file beside `path` that holds `content`, on the disk; it goes away unless it was renamed.
    Raises `OSError` if it cannot be written.
    """
    new = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(new, _FLAGS, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield new
    except OSError as error:
        error.filename = error.filename or str(path)  # what is written into a full disk names no file
        raise
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def remedy(error: OSError, otherwise: str = "name a file in a folder of yours") -> str:
    """Return what to do about what could not be written."""
    return "make room, or name a place on another disk" if error.errno in _FULL else otherwise


def sync_folder(folder: Path) -> None:
    """Bring to the disk which names are in a folder: once this returns, a file that was renamed there stays."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
