"""Ctrl-C ends the process until a command has begun; then it is a KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["answer_interrupts", "end_as_interrupted", "hand_over_interrupts"]

_INTERRUPTED = 130
_AGAIN_S = 0.05  # the callback has ended by then


def answer_interrupts() -> None:
    """Have Ctrl-C end the process at once, in one word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored: in the background
        signal.signal(signal.SIGINT, _end)


def end_as_interrupted() -> None:
    """Have a time limit and a closed terminal (SIGTERM, SIGHUP) end the process as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not where it is ignored, as by nohup
            signal.signal(number, signal.default_int_handler)


def hand_over_interrupts() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again: who calls this answers it from now on."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.unraisablehook is sys.__unraisablehook__:  # also under `python -m`; a test runner has a hook of its own
        sys.unraisablehook = _ask_again


def _ask_again(lost: sys.UnraisableHookArgs) -> None:
    # Raised in a finaliser or in a callback of the garbage collector, where the interpreter drops it.
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    from threading import Timer

    Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # At once: nothing was begun, and an exception in the middle of an import may be taken for something else.
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(_INTERRUPTED)
