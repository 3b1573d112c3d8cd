"""Engines that were built on this device, one folder per key."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from edge.device.disk import typed
from edge.device.durable import Durable, temporary
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.reading import SMALL_BYTES

__all__ = ["Engines", "check_key"]


def check_key(key: str) -> str:
    """Return `key` if it is an engine's, so that it may become a file name.

    Raises:
        DeployError: `request.engine`.
    """
    if not 8 <= len(key) <= 64 or set(key) - set("0123456789abcdef"):
        raise DeployError("request.engine", f"{key[:80]!r} is no engine key: expected 8 to 64 lower-case hex digits")
    return key


class Engines:
    """The engines of a device; one that has its name was finished and is on the disk."""

    def __init__(self, layout: Layout, durable: Durable) -> None:
        self._layout = layout
        self._durable = durable
        self._files = durable.files

    def has(self, key: str) -> bool:
        """Return whether the engine is there."""
        return self._files.is_dir(self._layout.engine(check_key(key)))

    @typed
    def names(self) -> list[str]:
        """Return the keys of the engines that are here."""
        if not self._files.is_dir(self._layout.engines):
            return []
        return [name for name in self._files.names(self._layout.engines) if not name.startswith(".")]

    @typed
    def begin(self, key: str) -> Path:
        """Return a new, empty folder to build in, next to the final one; what an earlier build left there is gone."""
        folder = temporary(self._layout.engine(check_key(key)))
        self._durable.make_dirs(folder.parent)
        if self._files.is_dir(folder):
            self._durable.remove_tree(folder)
        self._files.make_dir(folder)
        return folder

    @typed
    def admit(self, key: str, folder: Path) -> None:
        """Give what was built in `folder` its name; if another build was faster, that one stays."""
        if self.has(key):
            self._durable.settle(self._layout.engine(key))
            self._durable.remove_tree(folder)
        else:
            self._durable.adopt_tree(folder, self._layout.engine(key))

    @typed
    def take(self, key: str, files: Mapping[str, bytes], *, replaces: bool) -> None:
        """Make an engine of the contents of its files; one that is here already stays unless the new one `replaces` it.

        Raises:
            DeployError: `device.disk.*`; nothing is left of the new one.
        """
        if self.has(key) and not replaces:
            return
        if self.has(key):
            self.quarantine(key)
        folder = self.begin(key)
        try:
            for name, content in files.items():
                self._files.write(folder / name, content)
            self.admit(key, folder)
        except (DeployError, OSError):
            with contextlib.suppress(DeployError, OSError):
                self._durable.remove_tree(folder)
            raise

    @typed
    def read(self, key: str, file: str, *, most_bytes: int = SMALL_BYTES) -> bytes:
        """Return the content of one file of an engine, which may have `most_bytes`."""
        return self._files.read(self._layout.engine(check_key(key)) / file, most_bytes=most_bytes)

    @typed
    def quarantine(self, key: str) -> None:
        """Take a damaged engine away, so that the next build makes it again."""
        self._durable.remove_tree(self._layout.engine(check_key(key)))
