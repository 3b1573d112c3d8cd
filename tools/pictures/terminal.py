"""A command on a terminal of its own, and what stood there last."""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Session", "page_of", "run_on_terminal", "screen_at_end", "without_log"]

_COLUMNS = 80
_CURSOR_IS_BACK = b"\x1b[?25h"
_LOGGED = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
_GOES_ON = re.compile(r"\w+=")
_STEP = re.compile(r"(\x1b\[2K|\x1b\[1A|\x1b\[\?25[lh]|\r|\n)")


@dataclass(frozen=True, slots=True)
class Session:
    """What a command has written.

    Attributes:
        screen: the last one before its live part was taken away, with its colours.
        told: what stands on the terminal at the end, without colours.
    """

    code: int
    stdout: str
    screen: str
    told: str


def run_on_terminal(command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> Session:
    """Run `command` with its stderr on a terminal; its stdout is read from a pipe, and so is without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, _COLUMNS, 0, 0))
    whole = {**(environment or os.environ), "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS)}
    with subprocess.Popen(
        command, cwd=folder, env=whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its
    ) as running:
        os.close(its)
        told = _read_all(ours)
        assert running.stdout is not None
        stdout = running.stdout.read().decode()
    shown = told[: told.rfind(_CURSOR_IS_BACK)] if _CURSOR_IS_BACK in told else told
    return Session(running.returncode, stdout, screen_at_end(shown.decode()), _plain(screen_at_end(told.decode())))


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # how a terminal says that the other side has gone
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(parts)
        parts.append(part)


def screen_at_end(written: str) -> str:
    """Return the lines that stand on a terminal at the end; of what moves its cursor, what rich writes is known."""
    lines, row = [""], 0
    for part in _STEP.split(written):
        match part:
            case "\n":
                row += 1
                lines.extend([""] * (row + 1 - len(lines)))
            case "\x1b[1A":
                row = max(0, row - 1)
            case "\x1b[2K":
                lines[row] = ""
            case "\r" | "\x1b[?25l" | "\x1b[?25h":
                pass
            case _:
                lines[row] += part
    return "\n".join(lines).rstrip()


def without_log(screen: str) -> str:
    """Return the lines of a screen but for those of the log, which go on in the next where they are longer."""
    lines: list[str] = []
    is_logged = False
    for line in screen.splitlines():
        plain = _plain(line)
        is_logged = bool(_LOGGED.match(plain) or (is_logged and _GOES_ON.match(plain)))
        lines += [] if is_logged else [line]
    return "\n".join(lines)


def page_of(screen: str, *, typed: str) -> str:
    """Return the HTML of a terminal on which `typed` was typed and `screen` stands."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    inside = console.export_html(code_format="{code}", inline_styles=True)
    return (
        "<!DOCTYPE html><meta charset=utf-8><body style='margin:0'>"
        "<pre style='margin:0;padding:14px 18px;background:#18181b;color:#ececee;display:inline-block;"
        f"font:15px/1.45 monospace'>$ {html.escape(typed)}\n{inside}</pre>"
    )
