"""What a wheel is for and what it unpacks to, without running anything of it. Standard library only.

Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import io
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from edge.errors import DeployError

__all__ = ["WheelName", "read_wheel_name", "unpacked"]

_NAME = re.compile(
    r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.+!]+)(?:-\d[^-]*)?-([a-z0-9_.]+)-([a-z0-9_.]+)-([A-Za-z0-9_.]+)\.whl"
)
_LIBRARY = ("purelib", "platlib")  # of NAME.data; scripts, headers and data are not for us
_UNFIT = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError),
    *(RuntimeError, NotImplementedError, EOFError, ValueError),
)
MOST_FILES = 20_000
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """What the name of a wheel says; the tags are alternatives, such as `cp311` and `py3`."""

    distribution: str
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
    return WheelName(distribution=found[1], version=found[2], pythons=tags[0], abis=tags[1], platforms=tags[2])


def unpacked(content: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file that belongs into a folder on Python's path.

    Args:
        content: of the wheel, whose signature was verified: this holds only that it stays within its folder and bounds.
        name: of the wheel, for messages.

    Raises:
        DeployError: `build.software`, if it is no such archive.
    """
    seen: set[str] = set()
    left_bytes = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                path = _path_of(entry, name)
                if path is None:
                    continue
                left_bytes -= entry.file_size
                if path in seen or left_bytes < 0 or len(seen) >= MOST_FILES:
                    raise _unfit(name, f"{path[:80]!r} is there twice, or it unpacks to too much")
                seen.add(path)
                yield path, archive.read(entry)
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
