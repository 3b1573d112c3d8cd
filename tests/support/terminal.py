"""A command on a terminal, and words that would do something to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.run_command import exit_code_of

# Set the clipboard, clear the screen, begin the line anew and another one, colour by C1, turn the direction, hide.
EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\rFORGED\nFORGED\x9b31m\u202egate\u2066\x00\u200b\u2028\x7f" + "w" * 300
COLUMNS = 200
_OURS = re.compile(r"\x1b\[(?:\?25[lh]|1A|2K|[0-9;]*m)")  # rich's: its rows are drawn anew


def on_terminal(*words: object) -> tuple[int, str]:
    """Type `edge-deploy ...`; return its exit code and all that a terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    told = bytearray()
    reader = threading.Thread(target=_read, args=(ours, told))
    reader.start()
    kept = [os.dup(number) for number in (1, 2)]
    with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        for number in (1, 2):
            os.dup2(theirs, number)
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, terminal)
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "argv", ["edge-deploy", *map(str, words)])
        try:
            code = exit_code_of(edge_deploy, is_service=False)
        finally:
            terminal.flush()
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)
    reader.join(60)
    os.close(ours)
    return code, told.decode("utf-8", "surrogateescape")


def started_on_terminal(*command: object, **how: Any) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command on a terminal of its own, and return the other end of that too; the caller closes it."""
    ours, theirs = pty.openpty()
    words = ["setsid", "--ctty", *map(str, command)]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, **how)
    os.close(theirs)
    return process, ours


def harm_of(told: str) -> list[str]:
    """Return the lines of what a terminal was sent that do more than show text, or were begun by a device."""
    lines = re.split(r"\r*\n|\r", _OURS.sub("", told))
    return [line for line in lines if not line.isprintable() or line.startswith("FORGED")]


def _read(descriptor: int, told: bytearray) -> None:
    try:
        while piece := os.read(descriptor, 65_536):
            told += piece
    except OSError:  # Linux says so where the last one has closed the terminal
        pass
