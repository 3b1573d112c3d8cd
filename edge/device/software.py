"""Software that releases brought, unpacked by edge-software for all to run (docs/adr/0045). Standard library only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edge.device.disk import typed
from edge.device.durable import Durable
from edge.device.layout import Layout
from edge.device.store import check_sha256
from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["LIBRARY", "PROGRAM", "InstalledSoftware", "Installation"]

LIBRARY = "lib"
"""What goes before everything else on Python's path."""

PROGRAM = "edge-runtime"
"""What Python is given to run; it puts LIBRARY on the path."""

_ACCOUNT = "installation.json"
_VOUCHED = "vouched"
_MOST_BYTES = 2 << 30
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Software over one installed edge-deploy: another one below it makes another installation.

    Attributes:
        key: of the software, see `edge.bundle.software`.
        beside: the folder of the installed edge-deploy over which it is laid.
    """

    key: str
    beside: str

    @property
    def name(self) -> str:
        """Lower-case hex SHA-256 over both: its folder, whose content never changes."""
        return hashlib.sha256(f"{check_sha256(self.key)}\n{self.beside}\n".encode()).hexdigest()


class InstalledSoftware:
    """The software of a device besides what provision installed; one that has its name is whole and on the disk."""

    def __init__(self, layout: Layout, durable: Durable) -> None:
        self._root, self._durable = layout.software, durable
        self._files = durable.files

    @typed
    def names(self) -> list[str]:
        """Return the names of the installations that are here."""
        return [name for name in self._all(self._root) if _NAME.fullmatch(name)]

    def origin(self, name: str) -> Installation | None:
        """Return what an installation is of; None: it is not here, or that cannot be read any more."""
        try:
            values = json_object(self._files.read(self._root / check_sha256(name) / _ACCOUNT, most_bytes=_MOST_BYTES))
            return Installation(key=check_sha256(str(values["key"])), beside=str(values["beside"]))
        except (OSError, ValueError, KeyError, DeployError):
            return None

    def problem(self, name: str) -> str | None:
        """Return what is wrong with an installation, each file of which is read for that; None: it is as installed."""
        folder = self._root / check_sha256(name)
        try:
            if not self._files.is_dir(folder):
                return "is not here"
            values = json_object(self._files.read(folder / _ACCOUNT, most_bytes=_MOST_BYTES))
            if Installation(key=str(values["key"]), beside=str(values["beside"])).name != name:
                return "is damaged: its account is of another"
            digests: Mapping[str, str] = values["files"]
            for path, sha256 in digests.items():
                content = self._files.read(folder / path, most_bytes=_MOST_BYTES)
                if hashlib.sha256(content).hexdigest() != sha256:
                    return f"is damaged: {path}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DeployError) as error:
            return f"is damaged: {str(error)[:200]}"
        return None if PROGRAM in digests and len(digests) > 1 else "is damaged: it is empty"

    @typed
    def install(
        self,
        one: Installation,
        files: Iterable[tuple[str, bytes]],
        *,
        program: bytes,
        check: Callable[[Path], None] = lambda _folder: None,
    ) -> None:
        """Write software beside what is here; one of the same name, which is damaged then, is replaced.

        Args:
            one: what it is.
            files: path and content of what is imported; the paths were checked to stay within a folder.
            program: what Python is given to run.
            check: raises for a folder that is not to be installed; it does not have its name yet.

        Raises:
            DeployError: `device.disk.*`, or of `check`; nothing is left of it then, as far as the disk allows.
        """
        folder = self._root / one.name
        partial = self._root / f".{one.name}.new.tmp"  # `temporary` is where what it replaces goes first
        if self._files.is_dir(partial):
            self._durable.remove_tree(partial)
        try:
            self._fill(partial, one, files, program)
            check(partial)
            if self._files.length(folder) is not None or self._files.is_dir(folder):
                self._remove_any(folder)
            self._durable.adopt_tree(partial, folder)
        except BaseException:
            if self._files.is_dir(partial):
                self._durable.remove_tree(partial)
            raise

    @typed
    def remove(self, name: str) -> None:
        """Remove an installation that nothing runs with any more."""
        self._durable.remove_tree(self._root / check_sha256(name))

    @typed
    def clear(self) -> None:
        """Remove what a power cut or a kill has left half made."""
        for folder in (self._root, self._root / _VOUCHED):
            for name in self._all(folder):
                if name.startswith(".") and name.endswith(".tmp"):
                    self._remove_any(folder / name)

    @typed
    def vouch(self, key: str) -> None:
        """Note that somebody who counted had signed this software when it came."""
        if not self._files.is_dir(self._root / _VOUCHED):
            self._files.make_dir(self._root / _VOUCHED, mode=0o755)
        self._durable.settle(self._root / _VOUCHED)
        self._durable.put(self._root / _VOUCHED / check_sha256(key), b"", mode=0o644)

    @typed
    def vouched(self) -> list[str]:
        """Return the keys of the software for which that was noted."""
        return [name for name in self._all(self._root / _VOUCHED) if _NAME.fullmatch(name)]

    @typed
    def forget(self, key: str) -> None:
        """Take such a note back."""
        self._durable.remove(self._root / _VOUCHED / check_sha256(key))

    def _all(self, folder: Path) -> list[str]:
        return self._files.names(folder) if self._files.is_dir(folder) else []

    def _fill(self, partial: Path, one: Installation, files: Iterable[tuple[str, bytes]], program: bytes) -> None:
        digests = {}
        self._make(partial / LIBRARY)
        for path, content in _with_program(files, program):
            target = partial / path
            self._make(target.parent)
            self._files.write(target, content, mode=0o644)
            digests[path] = hashlib.sha256(content).hexdigest()
        account = json.dumps({**asdict(one), "files": digests}).encode()
        self._files.write(partial / _ACCOUNT, account, mode=0o644)

    def _make(self, folder: Path) -> None:
        missing = [folder, *folder.parents]
        for one in reversed(missing[: next(at for at, path in enumerate(missing) if self._files.is_dir(path))]):
            self._files.make_dir(one, mode=0o755)

    def _remove_any(self, path: Path) -> None:
        if self._files.link_target(path) is None and self._files.is_dir(path):
            self._durable.remove_tree(path)
        else:
            self._files.remove(path)


def _with_program(files: Iterable[tuple[str, bytes]], program: bytes) -> Iterator[tuple[str, bytes]]:
    yield PROGRAM, program
    for path, content in files:
        yield f"{LIBRARY}/{path}", content
