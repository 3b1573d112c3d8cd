"""Standard output and error that take nothing any more: a full disk, a closed descriptor. Standard library only."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from edge.errors import ConfigError

__all__ = ["lenient_stderr", "stdout_problem", "write_stdout"]


class _Lenient(io.FileIO):
    """Lets go what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def lenient_stderr() -> None:
    """Let standard error take all: a command that cannot say how far it is, as on a full disk, goes on all the same."""
    stream = sys.stderr
    if stream is sys.__stderr__ and stream is not None:
        file = io.BufferedWriter(_Lenient(stream.fileno(), "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(file, stream.encoding, stream.errors, line_buffering=True)


def stdout_problem(raised: OSError | None = None) -> ConfigError | None:
    """Bring to standard output what was written to it; return what hinders that, None where nothing does.

    What could not be written is then let go, so that Python does not try it again at its end.

    `raised`: what writing to it has raised already, which may have lost the text on the way.
    """
    if sys.stdout is None:  # Python's word for a descriptor that was closed at the start
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        raised = error
    if raised is None:
        return None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return ConfigError(
        f"standard output cannot be written: {raised.strerror}", hint="redirect it to where there is room"
    )


def write_stdout(text: str) -> None:
    """Write `text` to standard output; ConfigError if it does not take all of it."""
    raised = None
    if sys.stdout is None:
        raise ConfigError("standard output is closed", hint="redirect it to a file")
    try:
        sys.stdout.write(text)
    except OSError as error:
        raised = error
    problem = stdout_problem(raised)
    if problem is not None:
        raise problem
