"""Both commands as they are typed: in the process of the tests (`command`), each as a process, or on a terminal."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.run_command import exit_code_of
from edge.cli.runtime_commands import edge_runtime
from tests.support.dask_cluster import ROOT

_PROGRAMS = {"edge-deploy": edge_deploy, "edge-runtime": edge_runtime}


def command(name: str, *arguments: object, expected: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, as its entry point does; a process of its own takes most of a second.

    A test of a start, of a signal or of an environment that libraries read when they are loaded asks `apart`.
    """
    with pytest.MonkeyPatch.context() as patch, _told(1, "stdout") as out, _told(2, "stderr") as err:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        code = exit_code_of(_PROGRAMS[name], is_service=name == "edge-runtime")
    done = subprocess.CompletedProcess([name, *map(str, arguments)], code, "".join(out), "".join(err))
    return _as_expected(done, expected)


def apart(name: str, *arguments: object, expected: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    module = {"edge-deploy": "edge.cli.edge_deploy", "edge-runtime": "edge.cli.edge_runtime"}[name]
    words = [sys.executable, "-m", module, *map(str, arguments)]
    return _as_expected(subprocess.run(words, capture_output=True, text=True, timeout=120, check=False), expected)


def _as_expected(done: subprocess.CompletedProcess[str], expected: int | None) -> subprocess.CompletedProcess[str]:
    assert expected is None or done.returncode == expected, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@contextlib.contextmanager
def _told(descriptor: int, name: str) -> Iterator[list[str]]:
    """Collect what is written to a stream, by Python and by the libraries that it loads."""
    told: list[str] = []
    before, python = os.dup(descriptor), getattr(sys, name)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as file:
        os.dup2(file.fileno(), descriptor)
        setattr(sys, name, file)
        try:
            yield told
        finally:
            setattr(sys, name, python)
            os.dup2(before, descriptor)
            os.close(before)
            file.flush()
            file.seek(0)
            told.append(file.read())


def start(place: Path, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Begin `edge-deploy` as a process of its own, which leads a group as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "edge.cli.edge_deploy", *map(str, arguments)],
        cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def typed(place: Path, *arguments: object, expected: int = 0, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run `edge-deploy` and return what it printed on stdout and stderr."""
    process = start(place, *arguments, env=env)
    try:
        out, err = process.communicate(timeout=300)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == expected, err
    assert "Traceback" not in err
    return out, err


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
