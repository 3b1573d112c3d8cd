"""Durable writes: a power cut leaves the old or the new, and an error of the disk gets a code and a fix.

A test can stand in for the disk at the file-system calls that they are made of, and cut its power.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from edge.errors import DeployError
from edge.reading import SMALL_BYTES, UnfitFile, open_file, read_file, read_part

__all__ = ["Durable", "Files", "disk_error", "temporary", "typed"]

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


P = ParamSpec("P")
R = TypeVar("R")

_FREE = "free some space in /var/lib/edge-deploy (edge-deploy push collects garbage first), then push again"
_MODES = "as an ordinary user use sudo; else run: edge-deploy provision, which sets owners and modes"
_MEANING = {
    errno.ENOSPC: ("device.disk.space", _FREE),
    errno.EFBIG: ("device.disk.space", _FREE),
    errno.EDQUOT: ("device.disk.quota", "raise the quota of the user edge-deploy, then push again"),
    errno.EROFS: ("device.disk.readonly", "look for file-system errors in the device's journal; remount or reboot"),
    errno.EACCES: ("device.disk.permission", _MODES),
    errno.EPERM: ("device.disk.permission", _MODES),
}
_UNFIT = ("device.file", "look at it on the device, remove it, and ask who may write there; then push again")
_OTHERWISE = ("device.disk.io", "look for disk errors in the device's journal, then push again")


def disk_error(error: OSError) -> DeployError:
    """The evidence keeps the number and the path."""
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


def temporary(path: Path) -> Path:
    """Return where the next content of `path` grows; only `Durable` and garbage collection look there."""
    return path.with_name(f".{path.name}.tmp")


class Durable:
    """Writes that are on the disk when they return; nothing is ever modified in place.

    Two writers of one path must hold one lock: they share its temporary name.
    """

    def __init__(self, files: Files | None = None) -> None:
        self.files: Files = Files() if files is None else files

    @typed
    def put(self, path: Path, content: bytes, *, mode: int = 0o640) -> None:
        """On DeployError `device.disk.*` the old content is still there."""
        partial = temporary(path)
        with self._no_rest(partial):
            self.files.write(partial, content, mode=mode)
            self.files.sync(partial)
            self.files.rename(partial, path)
        self.files.sync_dir(path.parent)

    @typed
    def link(self, path: Path, target: str) -> None:
        """On DeployError `device.disk.*` the old link is still there."""
        partial = temporary(path)
        with self._no_rest(partial):
            if self.files.link_target(partial) is not None:
                self.files.remove(partial)
            self.files.symlink(partial, target)
            self.files.rename(partial, path)
        self.files.sync_dir(path.parent)

    @typed
    def adopt(self, partial: Path, path: Path) -> None:
        """Give a finished file its name, after a sync; on DeployError `device.disk.*` `path` is as it was."""
        self.files.sync(partial)
        self._move(partial, path)

    @typed
    def adopt_tree(self, partial: Path, path: Path) -> None:
        """Give a finished folder its name; all that is in it is synced before."""
        self._sync_tree(partial)
        self._move(partial, path)

    @typed
    def settle(self, path: Path) -> None:
        """Make the presence or absence of a name durable that was found.

        The process that gave it the name may have been killed before its sync: a power cut could still take the name
        away.
        """
        with contextlib.suppress(FileNotFoundError):  # where there is no folder, nothing was found in it
            self.files.sync_dir(path.parent)

    @typed
    def make_dirs(self, path: Path) -> None:
        """Create a folder and the folders above it that are missing; one that is found keeps its name, too."""
        if self.files.is_dir(path):
            self.settle(path)
            return
        self.make_dirs(path.parent)
        with contextlib.suppress(FileExistsError):
            self.files.make_dir(path)
        self.files.sync_dir(path.parent)

    @typed
    def remove(self, path: Path) -> None:
        """Do nothing where there is no file."""
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(path)
        self.files.sync_dir(path.parent)

    @typed
    def remove_tree(self, path: Path) -> None:
        """Remove a folder: it loses its name first, so that no process sees half of it; temporary names are garbage."""
        grave = path if path.name.endswith(".tmp") else temporary(path)
        if grave != path:
            if self.files.is_dir(grave):
                self.remove_tree(grave)
            self.files.rename(path, grave)
        self.settle(grave)  # one that is found here may have its old name on the disk
        self._clear(grave)

    @typed
    def append_line(self, path: Path, line: bytes) -> None:
        """Add one line; what a power cut left of the line before it does not swallow this one."""
        length = self.files.length(path)
        torn = bool(length) and self.files.read_at(path, (length or 1) - 1, 1) != b"\n"
        self.files.append(path, (b"\n" if torn else b"") + line.rstrip(b"\n") + b"\n")
        self.files.sync(path)
        self.settle(path)

    def _move(self, partial: Path, path: Path) -> None:
        # The folder that `partial` leaves is not synced: if its name comes back, that is garbage.
        self.files.rename(partial, path)
        self.files.sync_dir(path.parent)

    def _sync_tree(self, folder: Path) -> None:
        for name in self.files.names(folder):
            path = folder / name
            if self._is_real_dir(path):
                self._sync_tree(path)
            elif self.files.link_target(path) is None:
                self.files.sync(path)
        self.files.sync_dir(folder)

    def _clear(self, grave: Path) -> None:
        # Folders in folders are brought up first: however deep a tree is, no path gets longer.
        names = self.files.names(grave)
        fresh = (f"{number}.tmp" for number in itertools.count() if f"{number}.tmp" not in names)
        while names:
            path = grave / names.pop()
            if not self._is_real_dir(path):
                self.files.remove(path)
                continue
            for inner in self.files.names(path):
                if self._is_real_dir(path / inner):
                    names.append(next(fresh))
                    self.files.rename(path / inner, grave / names[-1])
                else:
                    self.files.remove(path / inner)
            self.files.remove_dir(path)
        self.files.remove_dir(grave)

    def _is_real_dir(self, path: Path) -> bool:
        return self.files.link_target(path) is None and self.files.is_dir(path)

    @contextlib.contextmanager
    def _no_rest(self, partial: Path) -> Iterator[None]:
        """Take the temporary file away when the write fails; a full disk shall not be filled by what failed."""
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):
                self.files.remove(partial)
            raise
