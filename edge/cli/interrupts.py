"""Ctrl-C before there is anybody who answers it: while a command is being imported, which takes long on a slow disk."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["answer_interrupts", "hand_over_interrupts"]

_INTERRUPTED = 130


def answer_interrupts() -> None:
    """Have Ctrl-C end the process at once, in one word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored: in the background
        signal.signal(signal.SIGINT, _end)


def hand_over_interrupts() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again: who calls this answers it from now on."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # At once: nothing was begun, and an exception in the middle of an import may be taken for something else.
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(_INTERRUPTED)
