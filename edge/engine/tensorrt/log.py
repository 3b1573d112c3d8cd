"""What TensorRT says: kept, because it gives its reasons to its logger only, and passed on to the program's log."""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LogSeverity", "MessageLog", "TensorRtMessage", "is_out_of_memory"]

_log = logging.getLogger(__name__)
_KEPT = 4000
_TOLD_CHARACTERS = 600
# CUDA's words, TensorRT's, and those of the Jetson's memory manager (NvMap, error 12 is ENOMEM).
# Looked at, and of no consequence: TensorRT says how it does what was asked for.
_HARMLESS = (
    "(foreignNode) Converting conv activation scales to fp32.",
    "(foreignNode) Converting conv weight scales to fp32.",
)
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


_LEVEL_OF = {
    LogSeverity.INTERNAL_ERROR: logging.ERROR,
    LogSeverity.ERROR: logging.ERROR,
    LogSeverity.WARNING: logging.WARNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtMessage:
    """One message, as TensorRT gave it."""

    severity: LogSeverity
    text: str


class MessageLog:
    """Takes TensorRT's messages, from any of its threads; keeps the last few thousand."""

    def __init__(self) -> None:
        self._messages: deque[TensorRtMessage] = deque(maxlen=_KEPT)
        self._told: set[str] = set()

    def add(self, severity: int, text: str) -> None:
        """Keep a message; `severity` is TensorRT's number."""
        message = TensorRtMessage(severity=LogSeverity(severity), text=text.strip())
        self._messages.append(message)
        self._tell(message)

    def _tell(self, message: TensorRtMessage) -> None:
        """Pass a message on: loudly once, because TensorRT says some things of every layer."""
        is_loud = message.text not in self._told and not message.text.startswith(_HARMLESS)
        level = _LEVEL_OF.get(message.severity, logging.DEBUG) if is_loud else logging.DEBUG
        _log.log(level, "tensorrt: %s", message.text)
        if level > logging.DEBUG:
            self._told.add(message.text)

    @property
    def messages(self) -> tuple[TensorRtMessage, ...]:
        """What was kept, the oldest first."""
        return tuple(self._messages)

    def texts(self, *, at_most: LogSeverity) -> tuple[str, ...]:
        """Return the texts of messages as severe as `at_most` or more, each once, the oldest first."""
        return tuple(dict.fromkeys(one.text for one in self._messages if one.severity <= at_most))

    def warnings(self) -> tuple[str, ...]:
        """Return the texts of warnings and errors that are not known to be harmless, each once."""
        return tuple(text for text in self.texts(at_most=LogSeverity.WARNING) if not text.startswith(_HARMLESS))

    def reason(self) -> str:
        """Return what a person has to know of a failure: the errors, else the last warning."""
        errors, warnings = self.texts(at_most=LogSeverity.ERROR), self.warnings()
        told = "; ".join(errors) if errors else next(iter(warnings[-1:]), "TensorRT gave no reason")
        return told[:_TOLD_CHARACTERS]


def is_out_of_memory(texts: Iterable[str]) -> bool:
    """Return whether one of TensorRT's messages says that memory ran out."""
    return any(
        word in text.lower().replace(" ", "").replace("_", "") or word in text.lower()
        for text in texts
        for word in _OUT_OF_MEMORY
    )
