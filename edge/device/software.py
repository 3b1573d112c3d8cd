"""Software that releases brought, unpacked by edge-software for all to run (docs/adr/0018). Standard library only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from edge.device.durable import Durable, typed
from edge.device.layout import Layout
from edge.device.releases import check_sha256
from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["LIBRARY", "PROGRAM", "InstalledSoftware", "Installation"]

LIBRARY = "lib"
"""Folder that goes before everything else on Python's path."""

PROGRAM = "edge-runtime"
"""Script that Python runs; it puts LIBRARY on the path."""

_ACCOUNT = "installation.json"
_VOUCHED = "vouched"
_MOST_ACCOUNT_BYTES = 16 << 20
_PIECE_BYTES = 4 << 20
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Software (`key`, see `edge.bundle.software`) over one installed edge-deploy, whose folder is `beside`."""

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
        return [name for name in self._all(self._root) if _NAME.fullmatch(name)]

    def origin(self, name: str) -> Installation | None:
        """Return None where the installation is missing, or its origin cannot be read."""
        try:
            values = json_object(
                self._files.read(self._root / check_sha256(name) / _ACCOUNT, most_bytes=_MOST_ACCOUNT_BYTES)
            )
            return Installation(key=check_sha256(str(values["key"])), beside=str(values["beside"]))
        except (OSError, ValueError, KeyError, DeployError):
            return None

    def problem(self, name: str) -> str | None:
        """Return what is wrong with an installation, each file of which is read for that; None: it is as installed."""
        folder = self._root / check_sha256(name)
        try:
            if not self._files.is_dir(folder):
                return "is not here"
            values = json_object(self._files.read(folder / _ACCOUNT, most_bytes=_MOST_ACCOUNT_BYTES))
            if Installation(key=str(values["key"]), beside=str(values["beside"])).name != name:
                return "is damaged: its account is of another"
            digests: Mapping[str, str] = values["files"]
            for path, sha256 in digests.items():
                if self._sha256(folder / path) != sha256:
                    return f"is damaged: {path}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DeployError) as error:
            return f"is damaged: {str(error)[:200]}"
        return None if PROGRAM in digests and len(digests) > 1 else "is damaged: it is empty"

    @typed
    def install(
        self,
        one: Installation,
        files: Iterable[tuple[str, Iterable[bytes]]],
        *,
        program: bytes,
        check: Callable[[Path], None] = lambda _folder: None,
    ) -> None:
        """Write software beside what is here; one of the same name, which is damaged then, is replaced.

        `files`: paths, checked to stay within a folder, and content in pieces. `program` is what Python is given to
        run.
        `check` raises for a folder that is not to be installed, before it has its name.
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
        """Note that a trusted signer had signed this software when it came."""
        if not self._files.is_dir(self._root / _VOUCHED):
            self._files.make_dir(self._root / _VOUCHED, mode=0o755)
        self._durable.settle(self._root / _VOUCHED)
        self._durable.put(self._root / _VOUCHED / check_sha256(key), b"", mode=0o644)

    @typed
    def vouched(self) -> list[str]:
        return [name for name in self._all(self._root / _VOUCHED) if _NAME.fullmatch(name)]

    @typed
    def forget(self, key: str) -> None:
        """Take such a note back."""
        self._durable.remove(self._root / _VOUCHED / check_sha256(key))

    def _all(self, folder: Path) -> list[str]:
        return self._files.names(folder) if self._files.is_dir(folder) else []

    def _fill(
        self, partial: Path, one: Installation, files: Iterable[tuple[str, Iterable[bytes]]], program: bytes
    ) -> None:
        digests = {}
        self._make(partial / LIBRARY)
        for path, pieces in chain([(PROGRAM, (program,))], ((f"{LIBRARY}/{path}", pieces) for path, pieces in files)):
            self._make((partial / path).parent)
            digests[path] = self._write(partial / path, pieces)
        account = json.dumps({**asdict(one), "files": digests}).encode()
        self._files.write(partial / _ACCOUNT, account, mode=0o644)

    def _write(self, path: Path, pieces: Iterable[bytes]) -> str:
        rest = iter(pieces)
        first = next(rest, b"")
        self._files.write(path, first, mode=0o644)
        digest, length = hashlib.sha256(first), len(first)
        for piece in rest:
            self._files.write_at(path, length, piece)
            digest.update(piece)
            length += len(piece)
        return digest.hexdigest()

    def _sha256(self, path: Path) -> str:
        digest, length = hashlib.sha256(), 0
        while piece := self._files.read_at(path, length, _PIECE_BYTES):
            digest.update(piece)
            length += len(piece)
        return digest.hexdigest()

    def _make(self, folder: Path) -> None:
        missing = [folder, *folder.parents]
        for one in reversed(missing[: next(at for at, path in enumerate(missing) if self._files.is_dir(path))]):
            self._files.make_dir(one, mode=0o755)

    def _remove_any(self, path: Path) -> None:
        if self._files.link_target(path) is None and self._files.is_dir(path):
            self._durable.remove_tree(path)
        else:
            self._files.remove(path)
