"""TensorRT's logger: keeps messages, because reasons come there only, and passes them on to the program's log."""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Iterable

__all__ = ["LogSeverity", "MessageLog", "is_out_of_memory"]

_log = logging.getLogger(__name__)
_KEPT = 1000  # errors, and warnings
_TOLD_CHARACTERS = 600
_SKIPPED = re.compile(r"Skipping tactic \S+ due to insufficient memory")
_QUIET = re.compile(rf"Tactic Device request: |.*{_SKIPPED.pattern}")  # two lines for each tactic: told as their number
# Looked at, and of no consequence: TensorRT says how it does what was asked for.
_HARMLESS = (
    "(foreignNode) Converting conv activation scales to fp32.",
    "(foreignNode) Converting conv weight scales to fp32.",
)
# CUDA's words, TensorRT's, and those of the Jetson's memory manager (NvMap, error 12 is ENOMEM).
_OUT_OF_MEMORY = (
    "out of memory",
    "outofmemory",
    "cudaerrormemoryallocation",
    "nvmapmemallocinternaltagged",
    "bad_alloc",
)


class LogSeverity(enum.IntEnum):
    """TensorRT's, by its numbers."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class MessageLog:
    """Takes TensorRT's messages, from any of its threads; keeps errors, and apart from them warnings, each once.

    What explains a failure is not lost among the 10^5 lines that a build says of its tactics, which are only passed on.

    Attributes:
        skipped_tactics: ways to compute a layer that a build did not try for lack of memory.
    """

    def __init__(self) -> None:
        self._errors: dict[str, None] = {}
        self._warnings: dict[str, None] = {}
        self.skipped_tactics = 0

    def add(self, severity: int, text: str) -> None:
        """Take a message, told loudly once if it is serious; `severity` is TensorRT's number."""
        if severity > LogSeverity.WARNING:
            _log.debug("tensorrt: %s", text)
            return
        is_error, told = severity <= LogSeverity.ERROR, text.strip()
        kept = self._errors if is_error else self._warnings
        self.skipped_tactics += bool(_SKIPPED.search(told))
        is_quiet = told.startswith(_HARMLESS) or _QUIET.match(told)
        is_loud = told not in kept and len(kept) < _KEPT and not is_quiet
        if len(kept) < _KEPT:
            kept[told] = None
        level = logging.ERROR if is_error else logging.WARNING
        _log.log(level if is_loud else logging.DEBUG, "tensorrt: %s", told)

    def warnings(self) -> tuple[str, ...]:
        """Return the texts of errors, and of warnings that are not known to be harmless."""
        return (*self._errors, *(text for text in self._warnings if not text.startswith(_HARMLESS)))

    def reason(self) -> str:
        """Return what a person has to know of a failure: the errors, else the last warning."""
        told = "; ".join(self._errors) or next(iter(self.warnings()[-1:]), "TensorRT gave no reason")
        return told[:_TOLD_CHARACTERS]


def is_out_of_memory(texts: Iterable[str]) -> bool:
    return any(
        word in text.lower().replace(" ", "").replace("_", "") or word in text.lower()
        for text in texts
        for word in _OUT_OF_MEMORY
    )
