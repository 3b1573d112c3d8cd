"""The file-system calls that durable writes are made of; a test can stand in for the disk here and cut its power."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Protocol

from edge.reading import SMALL_BYTES, open_file, read_file, read_part

__all__ = ["Files", "RealFiles"]

_KEEP_LENGTH = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
# Never through a link, and never waiting for the other end of a FIFO that somebody has put there.
_PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Files(Protocol):
    """The calls that change or read what a power cut can damage; nothing is durable before `sync` and `sync_dir`.

    Every call raises OSError as the operating system does.
    """

    def read(self, path: Path, *, most_bytes: int = SMALL_BYTES) -> bytes:
        """Return the content of a file; `UnfitFile` if it is no regular one, or longer than `most_bytes`."""
        ...

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        """Return up to `length` bytes of a file from `offset` on; fewer at its end."""
        ...

    def write(self, path: Path, content: bytes, *, mode: int = 0o640) -> None:
        """Create a file, or replace the content of one, with the permissions `mode`."""
        ...

    def write_at(self, path: Path, offset: int, content: bytes) -> None:
        """Write into an existing file from `offset` on."""
        ...

    def allocate(self, path: Path, length: int) -> None:
        """Create a file if it is missing and reserve `length` bytes for it on the disk; its length stays as it is."""
        ...

    def protect(self, path: Path) -> None:
        """Take the right to write into a file away from everyone, and let its group read it."""
        ...

    def append(self, path: Path, content: bytes) -> None:
        """Add to the end of a file, which is created if it is missing; nobody else reads it."""
        ...

    def sync(self, path: Path) -> None:
        """Make the content of a file durable."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable: those that were added, renamed and removed."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file, link or folder another name, in the place of a file or link that had it."""
        ...

    def symlink(self, path: Path, target: str) -> None:
        """Create a link at `path` that says `target`."""
        ...

    def make_dir(self, path: Path, *, mode: int = 0o750) -> None:
        """Create one folder."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file or a link."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Remove an empty folder."""
        ...

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def link_target(self, path: Path) -> str | None:
        """Return what a link says; None if there is no link at `path`."""
        ...

    def length(self, path: Path) -> int | None:
        """Return the length of a file in bytes; None if no file is there (links are followed)."""
        ...

    def modified_s(self, path: Path) -> float:
        """Return when a file was last written, in seconds since 1970 by this machine's clock."""
        ...

    def is_dir(self, path: Path) -> bool:
        """Return whether a folder is there (links are followed)."""
        ...


class RealFiles:
    """The operating system's files."""

    def read(self, path: Path, *, most_bytes: int = SMALL_BYTES) -> bytes:
        """Return the content of a file."""
        return read_file(path, most_bytes=most_bytes)

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        """Return a part of a file."""
        return read_part(path, offset, length)

    def write(self, path: Path, content: bytes, *, mode: int = 0o640) -> None:
        """Create a file, or replace the content of one."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _PLAIN, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)

    def write_at(self, path: Path, offset: int, content: bytes) -> None:
        """Write into an existing file."""
        descriptor = os.open(path, os.O_WRONLY | _PLAIN)
        try:
            view = memoryview(content)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)

    def allocate(self, path: Path, length: int) -> None:
        """Create a file and reserve its blocks."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
        try:
            if length:
                _reserve(descriptor, length)
        finally:
            os.close(descriptor)

    def protect(self, path: Path) -> None:
        """Make a file read-only."""
        os.chmod(path, 0o440)

    def append(self, path: Path, content: bytes) -> None:
        """Add to the end of a file."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _PLAIN, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)

    def sync(self, path: Path) -> None:
        """Flush a file to the disk."""
        _flush(open_file(path))

    def sync_dir(self, path: Path) -> None:
        """Flush a folder to the disk."""
        _flush(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing."""
        os.replace(source, target)

    def symlink(self, path: Path, target: str) -> None:
        """Create a link."""
        os.symlink(target, path)

    def make_dir(self, path: Path, *, mode: int = 0o750) -> None:
        """Create one folder."""
        os.mkdir(path, mode)

    def remove(self, path: Path) -> None:
        """Remove a file or a link."""
        os.unlink(path)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder."""
        return sorted(os.listdir(path))

    def link_target(self, path: Path) -> str | None:
        """Return what a link says."""
        return os.readlink(path) if path.is_symlink() else None

    def length(self, path: Path) -> int | None:
        """Return the length of a file."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def modified_s(self, path: Path) -> float:
        """Return when a file was last written."""
        return os.stat(path).st_mtime

    def is_dir(self, path: Path) -> bool:
        """Return whether a folder is there."""
        return path.is_dir()


def _flush(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, length: int) -> None:
    # os.posix_fallocate makes the file as long as what it reserves, but the length of a partial file is what tells a
    # broken transfer where to go on. Linux can reserve and keep the length; only the C library offers that.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    reserve = getattr(library, "fallocate64", None) or library.fallocate
    reserve.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if reserve(descriptor, _KEEP_LENGTH, 0, length) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EOPNOTSUPP, errno.ENOSYS):  # a file system that cannot reserve says so when it is full
        raise OSError(number, os.strerror(number))
