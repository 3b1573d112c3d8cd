"""Files of a calibration: whole or absent; an error names the file."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from edge import writing
from edge.errors import CalibrationError
from edge.mistaken import mistaken
from edge.reading import read_file

__all__ = ["read_bytes", "read_text", "write_all", "write_bytes"]


_MOST_BYTES = 1 << 30  # histograms of a model with thousands of tensors have a hundredth of it


def read_bytes(path: Path) -> bytes:
    """Raise `CalibrationError` if it cannot be read."""
    try:
        return read_file(path, most_bytes=_MOST_BYTES, follows_links=True)
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from error


def read_text(path: Path, *, expected: str) -> str:
    """`expected` says in errors what it should have been.
    Raises `CalibrationError` if it cannot be read, or is no UTF-8 text.
    """
    data = read_bytes(path)
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
    with _told(path):
        writing.write_whole(path, data)


def write_all(files: Mapping[Path, bytes]) -> None:
    """Put several files in place that belong together, each as `write_bytes` does: all of them, or none.

    Only losing power between two renames can leave a new file beside an old one.
    Raises `CalibrationError` if one cannot be written; all are then as they were.
    """
    with contextlib.ExitStack() as cleanup, contextlib.ExitStack() as undo:
        temporaries = {}
        for path, data in files.items():
            with _told(path):
                temporaries[path] = cleanup.enter_context(writing.staged(path, data))
        for path, temporary in temporaries.items():
            with _told(path):
                undo.callback(_put_back, path, _kept(path, cleanup))
                temporary.replace(path)
        undo.pop_all()


def _kept(path: Path, cleanup: contextlib.ExitStack) -> Path | None:
    """Return a second name of what is at `path` now; None where nothing is."""
    if not os.path.lexists(path):
        return None
    kept = path.parent / f".{path.name}.{os.getpid()}.old"
    cleanup.callback(_remove, kept)
    _remove(kept)
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # FAT has no hard links
        shutil.copy2(path, kept)
    return kept


def _put_back(path: Path, kept: Path | None) -> None:
    if kept is None:
        _remove(path)
    else:
        kept.replace(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be written: {error.strerror}", hint=writing.remedy(error)) from error
