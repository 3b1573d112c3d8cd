"""How far a build is: written by the process that builds, read by whoever waits for it. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edge.reading import json_object, read_file

if TYPE_CHECKING:
    from edge.types import Precision

__all__ = ["PROGRESS", "ProgressFile", "read_progress", "write_progress"]

PROGRESS = "progress.json"
_MAX_BYTES = 4096
_STEP = 0.01  # of a phase; less is not worth a write


class ProgressFile:
    """Keeps one line about the phase that is under way; nobody has to read it, and no build fails for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._told: tuple[str, float] = ("", 0.0)

    def of(self, precision: Precision) -> Callable[[str, float], None]:
        """Return what a builder tells its phase and how much of it is done, 0 to 1."""

        def tell(phase: str, share: float) -> None:
            name, told = f"{precision.value} {phase}", self._told
            if name == told[0] and abs(share - told[1]) < _STEP:
                return
            self._told = (name, share)
            write_progress(self._path, f"{name} {share:.0%}")

        return tell


def write_progress(path: Path, note: str) -> None:
    """Leave a note at `path`, where that is possible."""
    with contextlib.suppress(OSError):
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps({"note": note}), encoding="utf-8")
        os.replace(temporary, path)


def read_progress(path: Path) -> str:
    """Return what is told at `path`; empty where nothing can be read."""
    try:
        return str(json_object(read_file(path, most_bytes=_MAX_BYTES)).get("note", ""))[:200]
    except (OSError, ValueError):
        return ""
