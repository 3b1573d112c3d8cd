"""Every durable write of a device: a power cut leaves the old or the new, never something between them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from edge.device.disk import typed
from edge.device.files import Files, RealFiles

__all__ = ["Durable", "temporary"]


def temporary(path: Path) -> Path:
    """Return where the next content of `path` grows; nobody but `Durable` and garbage collection looks there."""
    return path.with_name(f".{path.name}.tmp")


class Durable:
    """Writes that are on the disk when they return; nothing is ever modified in place.

    Two writers of one path must hold one lock: they share its temporary name.
    """

    def __init__(self, files: Files | None = None) -> None:
        self.files: Files = RealFiles() if files is None else files

    @typed
    def put(self, path: Path, content: bytes, *, mode: int = 0o640) -> None:
        """Make `content` the content of `path`.

        Raises:
            DeployError: `device.disk.*`; the old content is still there.
        """
        partial = temporary(path)
        with self._no_rest(partial):
            self.files.write(partial, content, mode=mode)
            self.files.sync(partial)
            self.files.rename(partial, path)
        self.files.sync_dir(path.parent)

    @typed
    def link(self, path: Path, target: str) -> None:
        """Make `path` a link that says `target`, in the place of the link that was there.

        Raises:
            DeployError: `device.disk.*`; the old link is still there.
        """
        partial = temporary(path)
        with self._no_rest(partial):
            if self.files.link_target(partial) is not None:
                self.files.remove(partial)
            self.files.symlink(partial, target)
            self.files.rename(partial, path)
        self.files.sync_dir(path.parent)

    @typed
    def adopt(self, partial: Path, path: Path) -> None:
        """Give a finished file its name; its content is synced before.

        Raises:
            DeployError: `device.disk.*`; `path` is as it was.
        """
        self.files.sync(partial)
        self._move(partial, path)

    @typed
    def adopt_tree(self, partial: Path, path: Path) -> None:
        """Give a finished folder its name; all that is in it is synced before."""
        self._sync_tree(partial)
        self._move(partial, path)

    @typed
    def settle(self, path: Path) -> None:
        """Make the name of a thing durable that was found, or that it is gone.

        Whoever gave it the name may have been killed before its sync: what is seen is then not yet what a power cut
        leaves, and nothing may be built upon it.
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
        """Remove a file or a link; nothing happens if there is none."""
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(path)
        self.files.sync_dir(path.parent)

    @typed
    def remove_tree(self, path: Path) -> None:
        """Remove a folder: it loses its name first, so that nobody ever sees half of it.

        What a power cut leaves of it has a temporary name, and is garbage.
        """
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
        # Folders in folders are brought up first: however deep somebody has made a tree, no path gets longer.
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
