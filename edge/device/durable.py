"""Durable writes: a power cut leaves the old or the new, and an error of the disk gets a code and a fix."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from edge.device.files import Files
from edge.errors import DeployError
from edge.reading import UnfitFile

__all__ = ["Durable", "disk_error", "temporary", "typed"]

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
