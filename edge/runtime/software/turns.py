"""Whose turn it is: what provision installed, or what the release that serves has brought (docs/adr/0046).

Standard library only. What is noted lies in memory, so that it is gone after a boot: then the first turn is
provision's. Nothing in it is a time.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from edge.reading import read_file

__all__ = ["ANY", "Turns"]

ANY = "any"
"""Owed where nothing was asked: whatever provision's is asked does."""

_WORD = re.compile(r"[a-z-]{1,40}")
_NOTE = re.compile(rf"left ([1-9][0-9]{{0,3}})|owed ({_WORD.pattern})")
_MOST_BYTES = 100


class Turns:
    """The turns of one way in. Software that was brought takes one only where it is noted that provision's had its own.

    A turn that is taken is gone from the note before it begins, so that whatever ends it (a crash, a kill, a power cut)
    leaves the next one to provision's: it is given again by who has seen it end well. A note that cannot be read, or
    written, gives none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> int | None:
        """Take a turn of what was brought; return how many were left with this one. None: it is provision's turn."""
        left, _ = self._noted()
        if left is None:
            return None
        try:
            os.unlink(self._path)  # of two who ask at once, one has it
        except OSError:
            return None
        return left

    def give(self, left: int = 1) -> None:
        """Note that the next `left` turns may be those of what was brought; 0: the next one is provision's."""
        self._note(f"left {left}" if left else None)

    def owe(self, what: str) -> None:
        """Note that what was brought has not done well at a request, so that provision's has to be asked it first."""
        self._note(f"owed {what if _WORD.fullmatch(what) else ANY}")

    def begun(self) -> None:
        """Note that a turn of provision's begins; what was brought has the next one, unless something is owed."""
        left, owed = self._noted()
        if left is None and owed in (None, ANY):
            self.give()

    def asked(self, what: str) -> None:
        """Note that provision's is asked something; if that was owed, it no longer is."""
        if self.owed == what:
            self.give()

    @property
    def owed(self) -> str | None:
        """What was brought has not done well, so that provision's has to be asked it first; None: nothing."""
        return self._noted()[1]

    def _noted(self) -> tuple[int | None, str | None]:
        try:
            found = _NOTE.fullmatch(read_file(self._path, most_bytes=_MOST_BYTES).decode("ascii"))
        except (OSError, ValueError):
            return None, None
        if found is None:
            return None, None
        return (int(found[1]) if found[1] else None), found[2]

    def _note(self, content: str | None) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # provision's has the next turn then
            self._path.unlink(missing_ok=True)
            if content is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                partial.write_bytes(content.encode("ascii"))
                os.replace(partial, self._path)
