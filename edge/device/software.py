"""Software that releases brought: one folder per key, unpacked by edge-software and readable by all (docs/adr/0045)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from edge.device.disk import typed
from edge.device.durable import Durable, temporary
from edge.device.layout import Layout
from edge.device.store import check_sha256

__all__ = ["BESIDE", "LIBRARY", "PROGRAM", "PROVEN", "InstalledSoftware"]

LIBRARY = "lib"
"""What goes before everything else on Python's path."""

PROGRAM = "edge-runtime"
"""What Python is given to run; it puts LIBRARY on the path."""

BESIDE = "beside"
"""Names the installed edge-deploy over which this software is laid."""

PROVEN = "proven"
"""A link to the software that agent and pull are."""


class InstalledSoftware:
    """The software of a device besides what provision installed; one that has its name is whole and on the disk."""

    def __init__(self, layout: Layout, durable: Durable) -> None:
        self._root, self._durable = layout.software, durable
        self._files = durable.files

    @typed
    def names(self) -> list[str]:
        """Return the keys of what is here."""
        if not self._files.is_dir(self._root):
            return []
        return [name for name in self._files.names(self._root) if len(name) == 64]

    @typed
    def beside(self, key: str) -> str | None:
        """Return over which installed edge-deploy it is laid; None: it is not here."""
        path = self._root / check_sha256(key) / BESIDE
        return self._files.read(path).decode() if self._files.length(path) is not None else None

    @typed
    def install(self, key: str, *, beside: str, files: Iterable[tuple[str, bytes]], program: bytes) -> None:
        """Write software beside what is here; the paths of `files` were checked to stay within a folder.

        One of the same key is replaced, which processes that run it do not notice: what they have open stays open.
        """
        folder = self._root / check_sha256(key)
        partial = temporary(folder)
        if self._files.is_dir(partial):
            self._durable.remove_tree(partial)
        self._make(partial / LIBRARY)
        for path, content in files:
            target = partial / LIBRARY / path
            self._make(target.parent)
            self._files.write(target, content, mode=0o644)
        self._files.write(partial / PROGRAM, program, mode=0o644)
        self._files.write(partial / BESIDE, beside.encode(), mode=0o644)
        if self._files.is_dir(folder):
            self._durable.remove_tree(folder)
        self._durable.adopt_tree(partial, folder)

    @typed
    def lay_over(self, key: str, *, beside: str) -> None:
        """Note that software that is here is laid over another installed edge-deploy from now on."""
        self._durable.put(self._root / check_sha256(key) / BESIDE, beside.encode(), mode=0o644)

    @typed
    def remove(self, key: str) -> None:
        """Remove software that nothing is bound to any more."""
        self._durable.remove_tree(self._root / check_sha256(key))

    @typed
    def clear(self) -> None:
        """Remove what a power cut or a kill has left half made."""
        for name in self._files.names(self._root) if self._files.is_dir(self._root) else ():
            if name.startswith(".") and name.endswith(".tmp"):
                path = self._root / name
                if self._files.link_target(path) is None and self._files.is_dir(path):
                    self._durable.remove_tree(path)
                else:
                    self._files.remove(path)

    @typed
    def proven(self) -> str | None:
        """Return the software that agent and pull are; None: what is installed."""
        target = self._files.link_target(self._root / PROVEN)
        return None if target is None else PurePosixPath(target).name

    @typed
    def prove(self, key: str | None) -> None:
        """Make agent and pull this software; None: what is installed."""
        if key is None:
            self._durable.remove(self._root / PROVEN)
        else:
            self._durable.link(self._root / PROVEN, check_sha256(key))

    def _make(self, folder: Path) -> None:
        missing = [folder, *folder.parents]
        for one in reversed(missing[: next(at for at, path in enumerate(missing) if self._files.is_dir(path))]):
            self._files.make_dir(one, mode=0o755)
