"""Files of a calibration: whole or absent; an error names the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edge.errors import CalibrationError
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.writing import remedy, write_together

__all__ = ["read_text", "write_all", "write_bytes"]


_MOST_BYTES = 1 << 30  # a table of thousands of tensors has a thousandth of it


def read_text(path: Path, *, expected: str) -> str:
    """`expected` says in errors what it should have been.
    Raises `CalibrationError` if it cannot be read, or is no UTF-8 text.
    """
    try:
        data = read_file(path, most_bytes=_MOST_BYTES, follows_links=True)
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from error
    if (found := mistaken(data)) is not None:
        raise CalibrationError(f"{path}:1: expected {expected}, this is {found.what}", hint=found.todo)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CalibrationError(f"{path}:{line}: expected {expected}, byte {error.start} is no UTF-8 text") from error


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path`; a reader sees the old file or the new one, never a part.
    Raises `CalibrationError` if it cannot be written; `path` is then as it was.
    """
    write_all({path: data})


def write_all(files: Mapping[Path, bytes]) -> None:
    """Put several files in place that belong together, as `write_together` does: all of them, or none.
    Raises `CalibrationError` if one cannot be written; all are then as they were.
    """
    try:
        write_together(files)
    except OSError as error:
        path = error.filename
        raise CalibrationError(f"{path}: cannot be written: {error.strerror}", hint=remedy(error)) from error
