"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from edge.errors import CalibrationError

__all__ = ["read_bytes", "read_text", "write_whole"]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        CalibrationError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from error


def read_text(path: Path, *, expected: str) -> str:
    """Return the text of a file; `expected` says in errors what it should have been.

    Raises:
        CalibrationError: if it cannot be read, or is no UTF-8 text.
    """
    data = read_bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CalibrationError(f"{path}:{line}: expected {expected}, byte {error.start} is no UTF-8 text") from error


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` at `path`; whoever reads it sees the old file or the new one, never a part.

    Raises:
        CalibrationError: if it cannot be written; `path` is then as it was.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise CalibrationError(f"{path}: cannot be written: {error.strerror}") from error
