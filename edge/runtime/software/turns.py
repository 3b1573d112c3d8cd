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

__all__ = ["ANY", "PLAN", "Turns"]

ANY = "any"
"""Owed where nothing was asked: whatever provision's is asked does."""

PLAN = "plan"
"""What each push asks first, and so stands for all that a push asks."""

_WORD = re.compile(r"[a-z-]{1,40}")
_LEFT, _OWED = re.compile(r"left ([1-9][0-9]{0,3})"), re.compile(rf"owed ([1-9]) ({_WORD.pattern})")
_MOST_BYTES = 100
_MOST_OWED = 8


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
        kind, left, _ = self._noted()
        if kind != "left":
            return None
        try:
            os.unlink(self._path)  # of two who ask at once, one has it
        except OSError:
            return None
        return left

    def give(self, left: int = 1) -> None:
        """Note that the next `left` turns may be those of what was brought; 0: the next one is provision's."""
        self._note(f"left {left}" if left else None)

    def end_well(self) -> None:
        """Note that a turn has ended well; what another one, at the same time, has come to owe stays owed."""
        if self.owed is None:
            self.give()

    def owe(self, what: str) -> None:
        """Note that what was brought has not done well at a request, so that provision's has to be asked it first.

        A push that is owed stays so, whatever else is owed since.
        """
        if self.owed == PLAN:
            what = PLAN
        is_word = _WORD.fullmatch(what) and what != ANY
        self._note(f"owed {_MOST_OWED} {what}" if is_word else f"owed 1 {ANY}")

    def begun(self) -> None:
        """Note that a turn of provision's begins; what was brought has the next one, unless something is owed.

        After eight in a row in which nobody asked for anything, nothing is owed: it may be somebody whom only what was
        brought understands.
        """
        kind, count, what = self._noted()
        if kind == "owed" and count > 1:
            self._note(f"owed {count - 1} {what}")
        elif kind != "left":
            self.give()

    def asked(self, what: str) -> None:
        """Note that provision's is asked something; if that was owed, it no longer is.

        Nor is anything else once a push was asked, but for one more turn: it may be a push that only what was brought
        can take, and nobody may ask for that other thing again.
        """
        _, count, owed = self._noted()
        if owed == what:
            self.give()
        elif owed is not None and what == PLAN:
            self.owe(ANY)
        elif owed is not None and count < _MOST_OWED:
            self.owe(owed)

    @property
    def owed(self) -> str | None:
        """What was brought has not done well, so that provision's has to be asked it first; None: nothing."""
        return self._noted()[2]

    def _noted(self) -> tuple[str | None, int, str | None]:
        try:
            text = read_file(self._path, most_bytes=_MOST_BYTES).decode("ascii")
        except (OSError, ValueError):
            return None, 0, None
        if (left := _LEFT.fullmatch(text)) is not None:
            return "left", int(left[1]), None
        owed = _OWED.fullmatch(text)
        return (None, 0, None) if owed is None else ("owed", int(owed[1]), owed[2])

    def _note(self, content: str | None) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # provision's has the next turn then
            self._path.unlink(missing_ok=True)
            if content is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                partial.write_bytes(content.encode("ascii"))
                os.replace(partial, self._path)
