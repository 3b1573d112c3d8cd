"""The file-system calls that durable writes are made of; a test can stand in for the disk here and cut its power."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from edge.reading import SMALL_BYTES, open_file, read_file, read_part

__all__ = ["Files"]

_KEEP_LENGTH = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
# Never through a link, and never waiting for the other end of a FIFO.
_PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Files:
    """Calls on what a power cut can damage; only `sync` and `sync_dir` make them durable. They raise OSError."""

    def read(self, path: Path, *, most_bytes: int = SMALL_BYTES) -> bytes:
        """`UnfitFile` if it is no regular file, or longer than `most_bytes`."""
        return read_file(path, most_bytes=most_bytes)

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        """Fewer than `length` bytes come at the end of the file."""
        return read_part(path, offset, length)

    def write(self, path: Path, content: bytes, *, mode: int = 0o640) -> None:
        """Create a file, or replace the content of one, with the permissions `mode`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _PLAIN, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)

    def write_at(self, path: Path, offset: int, content: bytes) -> None:
        """Write into an existing file from `offset` on."""
        descriptor = os.open(path, os.O_WRONLY | _PLAIN)
        try:
            view = memoryview(content)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)

    def allocate(self, path: Path, length: int) -> None:
        """Create a file if it is missing and reserve `length` bytes for it on the disk; its length stays as it is."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
        try:
            if length:
                _reserve(descriptor, length)
        finally:
            os.close(descriptor)

    def protect(self, path: Path) -> None:
        """Take the right to write into a file away from everyone, and let its group read it."""
        os.chmod(path, 0o440)

    def append(self, path: Path, content: bytes) -> None:
        """Add to the end of a file, which is created if it is missing; it has no other reader."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _PLAIN, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)

    def sync(self, path: Path) -> None:
        _flush(open_file(path))

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable: those that were added, renamed and removed."""
        _flush(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file, link or folder another name, in the place of a file or link that had it."""
        os.replace(source, target)

    def symlink(self, path: Path, target: str) -> None:
        """Create a link at `path` that says `target`."""
        os.symlink(target, path)

    def make_dir(self, path: Path, *, mode: int = 0o750) -> None:
        os.mkdir(path, mode)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_dir(self, path: Path) -> None:
        os.rmdir(path)

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def link_target(self, path: Path) -> str | None:
        """None if there is no link at `path`."""
        return os.readlink(path) if path.is_symlink() else None

    def length(self, path: Path) -> int | None:
        """Return bytes, behind links; None if no file is there."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def modified_s(self, path: Path) -> float:
        """Return seconds since 1970 by this machine's clock."""
        return os.stat(path).st_mtime

    def is_dir(self, path: Path) -> bool:
        """Follow links."""
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
