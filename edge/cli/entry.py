"""Where both commands begin: Ctrl-C is answered before anything else is imported, which takes long on a slow disk."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["edge_deploy", "edge_runtime", "hand_over_interrupts"]

_INTERRUPTED = 130


def edge_deploy() -> NoReturn:
    """Run the workstation's command."""
    _answer_interrupts()
    from edge.cli.edge_deploy import main

    main()


def edge_runtime() -> NoReturn:
    """Run the device's command."""
    _answer_interrupts()
    from edge.cli.edge_runtime import main

    main()


def hand_over_interrupts() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again: who calls this answers it from now on."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _answer_interrupts() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored: in the background
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # At once: nothing was begun, and an exception in the middle of an import may be taken for something else.
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(_INTERRUPTED)
