"""The software that a release brings: wheels among its files, named together by one key.

A wheel is read without running anything of it. Standard library only.
Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from edge.bundle.manifest import BundledFile, Manifest, Role
from edge.errors import DeployError

__all__ = ["PackedFile", "ReleaseSoftware", "WheelName", "read_wheel_name", "software_of", "unpacked"]

_NAME = re.compile(
    r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.+!]+)(?:-\d[^-]*)?-([a-z0-9_.]+)-([a-z0-9_.]+)-([A-Za-z0-9_.]+)\.whl"
)
_LIBRARY = ("purelib", "platlib")  # of NAME.data; scripts, headers and data are not for us
_UNFIT = (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError, EOFError, ValueError)
_PIECE_BYTES = 1 << 20
MOST_FILES = 20_000
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """Parts of a wheel's name; the tags are alternatives, such as `cp311` and `py3`."""

    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    def fits(self, *, python: tuple[int, int], architecture: str) -> bool:
        """Return whether it is for this Python (3, 11) on this machine (`aarch64`)."""
        return any(self._is_for(tag, python) for tag in self.pythons) and any(
            tag == "any" or tag.endswith(f"linux_{architecture}") or self._is_many(tag, architecture)
            for tag in self.platforms
        )

    def _is_for(self, tag: str, python: tuple[int, int]) -> bool:
        if tag == f"py{python[0]}" or tag == f"cp{python[0]}{python[1]}":
            return True
        older = re.fullmatch(rf"cp{python[0]}(\d+)", tag)
        return "abi3" in self.abis and older is not None and int(older[1]) <= python[1]

    def _is_many(self, tag: str, architecture: str) -> bool:
        return tag.startswith("manylinux") and tag.endswith(f"_{architecture}")


def read_wheel_name(name: str) -> WheelName | None:
    """Return what the file name of a wheel says; None if it is not the name of one."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    tags = [tuple(part.split(".")) for part in found.groups()[2:]]
    return WheelName(version=found[2], pythons=tags[0], abis=tags[1], platforms=tags[2])


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file of a wheel; `pieces`, which can be taken once and before the next file, are `length_bytes` long."""

    path: str
    length_bytes: int
    pieces: Iterator[bytes]


def unpacked(content: BinaryIO, name: str) -> Iterator[PackedFile]:
    """Yield each file of a wheel that belongs into a folder on Python's path, a piece of it at a time.

    Its signature was verified: this holds only that it stays within its folder and bounds. DeployError
    `build.software`, if it is no such archive; the pieces raise it as well.
    """
    seen: set[str] = set()
    left_bytes = MOST_BYTES
    with _readable(name), zipfile.ZipFile(content) as archive:
        for entry in archive.infolist():
            path = _path_of(entry, name)
            if path is None:
                continue
            left_bytes -= entry.file_size
            if path in seen or left_bytes < 0 or len(seen) >= MOST_FILES:
                raise _unfit(name, f"{path[:80]!r} is there twice, or it unpacks to too much")
            seen.add(path)
            yield PackedFile(path, entry.file_size, _pieces(archive, entry, name))


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    # Only these two unpack no more at once than is asked for.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _unfit(name, f"{entry.filename[:80]!r} is neither stored nor deflated")
    left_bytes = entry.file_size
    with _readable(name), archive.open(entry) as file:
        while piece := file.read(_PIECE_BYTES):
            left_bytes -= len(piece)
            yield piece
    if left_bytes:
        raise _unfit(name, f"{entry.filename[:80]!r} is not of the size that it states")


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _UNFIT as error:
        raise _unfit(name, f"{type(error).__name__}: {str(error)[:100]}") from None


def _path_of(entry: zipfile.ZipInfo, name: str) -> str | None:
    """Return where an entry goes; None: nowhere."""
    pure = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    is_plain = pure.as_posix() == entry.filename.rstrip("/") and not {"..", ""} & set(pure.parts)
    if not is_plain or pure.is_absolute() or not pure.parts or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _unfit(name, f"{entry.filename[:80]!r} is no plain file within it")
    if entry.is_dir():
        return None
    if not pure.parts[0].endswith(".data"):
        return pure.as_posix()
    is_library = len(pure.parts) > 2 and pure.parts[1] in _LIBRARY
    return PurePosixPath(*pure.parts[2:]).as_posix() if is_library else None


def _unfit(name: str, problem: str) -> DeployError:
    return DeployError("build.software", f"{name} is no wheel that can be unpacked: {problem}", hint="bundle it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSoftware:
    """Software of a release; `wheels`, sorted by path, include edge-deploy's own, of `version`.

    `key`: lower-case hex SHA-256 over names and digests of all wheels: the same wheels, the same key.
    """

    key: str
    version: str
    wheels: tuple[BundledFile, ...]

    @property
    def length_bytes(self) -> int:
        return sum(one.length_bytes for one in self.wheels)

    def misfit(self, *, python: tuple[int, int], architecture: str) -> str | None:
        """Return the name of a wheel that is for another Python or machine; None: all are for this one."""
        for one in self.wheels:
            named = read_wheel_name(PurePosixPath(one.path).name)
            if named is None or not named.fits(python=python, architecture=architecture):
                return PurePosixPath(one.path).name
        return None


def software_of(manifest: Manifest) -> ReleaseSoftware | None:
    """Return None where the release brings no software."""
    wheels = manifest.files_of(Role.SOFTWARE)
    if not wheels:
        return None
    lines = (f"{PurePosixPath(one.path).name} {one.sha256}\n" for one in wheels)
    own = next(one for one in wheels if one.is_own_software)
    named = read_wheel_name(PurePosixPath(own.path).name)
    key = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
    return ReleaseSoftware(key=key, version="" if named is None else named.version, wheels=wheels)
