"""Reads, writes and removes the contents of an open folder without ever leaving it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from edge.deploy.provision.remote.tools import Conflict, Folder, run

__all__ = ["empty", "holds_files", "open_file_in", "put", "read", "remove_tree"]

_DEEPEST = 100  # folders held open at once; what lies deeper is brought up first
_EMPTY_S = 900.0  # somebody may go on writing
_MOST_BYTES = 16 * 1024**2


@contextmanager
def open_file_in(folder: Folder, name: str) -> Iterator[int | None]:
    """Give a regular file, open for reading; None: it is not there.

    Conflict: if it is a link, has a second name (whose owner could be another), or is no regular file.
    """
    path = os.path.join(folder.path, name)
    try:
        # A FIFO is not waited for.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.fd)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise Conflict(f"{path} is {'a link' if error.errno == errno.ELOOP else 'no regular file'}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Conflict(f"{path} is no regular file")
        if status.st_nlink > 1:
            raise Conflict(f"{path} has another name, too (a hard link); remove that one first")
        yield fd
    finally:
        os.close(fd)


def read(fd: int) -> bytes:
    """Conflict if it is larger than anything that provision writes."""
    content = bytearray()
    while part := os.pread(fd, 1 << 20, len(content)):
        content += part
        if len(content) > _MOST_BYTES:
            raise Conflict(f"{os.readlink(f'/proc/self/fd/{fd}')} is larger than {_MOST_BYTES} bytes")
    return bytes(content)


def put(
    folder: Folder, name: str, content: bytes, *, mode: int, ids: tuple[int, int], test: Sequence[str] | None = None
) -> None:
    """Write a file beside its place, let `test` accept it, move it there; durable when this returns.

    Conflict: if others than root can change names in the folder, or if the test refuses.
    """
    folder.require_roots()
    partial = f".{name}.partial"
    _unlink(folder, partial)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(partial, flags, 0o600, dir_fd=folder.fd), "wb") as file:
        file.write(content)
        file.flush()
        os.fchown(file.fileno(), *ids)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    try:
        if test:
            run([*test, os.path.join(folder.path, partial)])
        os.rename(partial, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    finally:
        _unlink(folder, partial)
    os.fsync(folder.fd)


def holds_files(folder: Folder, *, depth: int = 0) -> bool:
    """Return whether a folder holds anything else than folders."""
    with os.scandir(folder.fd) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    if not all(is_folder for _, is_folder in entries) or (entries and depth == _DEEPEST):
        return True
    for name, _ in entries:
        with folder.inner(name) as inner:
            if holds_files(inner, depth=depth + 1):
                return True
    return False


def remove_tree(folder: Folder, name: str) -> list[str]:
    """Remove a folder in `folder`, or whatever has this name; return what stays and why, as `empty`."""
    if _unlink(folder, name):
        return []
    with folder.inner(name) as inner:
        stays = empty(inner)
    if not stays:
        os.rmdir(name, dir_fd=folder.fd)
    return stays


def empty(folder: Folder) -> list[str]:
    """Remove all that is in a folder; return what stays and why: a folder where something is mounted.

    Conflict: if others write faster into it than this can remove, for a quarter of an hour.
    """
    stays: list[str] = []
    deadline = time.monotonic() + _EMPTY_S
    while True:
        before = set(os.listdir(folder.fd))
        for name in before:
            _remove(folder, name, folder, stays, depth=0)
        if stays or not os.listdir(folder.fd):
            return sorted(set(stays))
        if time.monotonic() > deadline:
            raise Conflict(f"{folder.path} is written to while it is emptied; stop what does")


def _remove(folder: Folder, name: str, top: Folder, stays: list[str], *, depth: int) -> None:
    if _unlink(folder, name):
        return
    if depth == _DEEPEST:
        with suppress(FileNotFoundError):
            os.rename(name, secrets.token_hex(16), src_dir_fd=folder.fd, dst_dir_fd=top.fd)
        return
    try:
        with folder.inner(name) as inner:
            if inner.mount() != folder.mount():
                stays.append(f"something is mounted at {inner.path}")
                return
            for each in os.listdir(inner.fd):
                _remove(inner, each, top, stays, depth=depth + 1)
        os.rmdir(name, dir_fd=folder.fd)
    except (FileNotFoundError, NotADirectoryError, Conflict):
        pass  # somebody has put something else there meanwhile: the next round removes that
    except OSError as error:
        if error.errno == errno.EBUSY:
            stays.append(f"something is mounted at {os.path.join(folder.path, name)}")
        elif error.errno != errno.ENOTEMPTY:
            raise


def _unlink(folder: Folder, name: str) -> bool:
    """Remove a name that is no folder; return False if it is one."""
    try:
        os.unlink(name, dir_fd=folder.fd)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return False
    return True
