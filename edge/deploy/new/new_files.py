"""All files of one command at once: each whole, and all of them or none."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge.errors import ConfigError
from edge.writing import staged

__all__ = ["NewFile", "write_new_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be; `check` looks at it, under another name in the same folder, before any file gets its own."""

    path: Path
    content: bytes = field(repr=False)
    mode: int = 0o666
    check: Callable[[Path], object] = lambda path: None


def write_new_files(files: Sequence[NewFile]) -> None:
    """Write `files`, in this order; an interrupt comes before or after.

    Raises:
        ConfigError: if one cannot be written, or what its `check` raises: then there is none of them.
    """
    with contextlib.ExitStack() as stack:
        new = [(file, _staged(stack, file)) for file in files]
        for file, path in new:
            file.check(path)
        with _interrupts_wait():
            for file, path in new:
                path.replace(file.path)


def _staged(stack: contextlib.ExitStack, file: NewFile) -> Path:
    try:
        return stack.enter_context(staged(file.path, file.content, mode=file.mode))
    except OSError as error:
        raise ConfigError(
            f"{file.path}: cannot be written: {error.strerror}", hint="name a file in a folder of yours"
        ) from error


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C wait for what takes a moment; only the main thread is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
