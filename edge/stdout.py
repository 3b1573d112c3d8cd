"""Standard output and error that take nothing any more: a full disk, a closed descriptor. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

from edge.errors import ConfigError

__all__ = ["lenient_stderr", "stdout_problem", "write_stdout"]


class _Lenient(io.FileIO):
    """Lets go what it cannot write."""

    def write(self, data: Any, /) -> int:
        left = data
        with contextlib.suppress(OSError):
            while left and (written := super().write(left)):
                left = left[written:]
        return len(data)


def lenient_stderr() -> None:
    """Let standard error take all: a command that cannot say how far it is, as on a full disk, goes on all the same."""
    stream = sys.stderr
    if stream is sys.__stderr__ and stream is not None:
        # Without a buffer: Ctrl-C between writing and counting what was written would leave the line there, said twice.
        file = _Lenient(stream.fileno(), "wb", closefd=False)
        sys.stderr = io.TextIOWrapper(file, stream.encoding, stream.errors, write_through=True)


def stdout_problem(raised: OSError | None = None) -> ConfigError | None:
    """Bring to standard output what was written to it; return what hinders that, None where nothing does.

    What could not be written is then let go, so that Python does not try it again at its end. A reader that has closed
    its pipe, such as `| head`, hinders nothing: it has what it wanted.
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
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    if raised.errno == errno.EPIPE:
        return None
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
    if (problem := stdout_problem(raised)) is not None:
        raise problem
