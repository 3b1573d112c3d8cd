"""Tells when a disk does not answer: nothing of Python ends a call that worn flash or a frozen file system holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["StallWatch"]


class StallWatch:
    """Calls back, in a thread of its own, when work has not gone on for `after_s`: once until it does again."""

    def __init__(self, after_s: float, on_stall: Callable[[], None]) -> None:
        self._after_s, self._on_stall = after_s, on_stall
        self._since_s: float | None = None
        self._is_told = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what is done within."""
        self.goes_on()
        try:
            yield
        finally:
            self._since_s = None

    def goes_on(self) -> None:
        """Say that the disk has answered, and is asked the next thing."""
        self._since_s, self._is_told = time.monotonic(), False

    def _run(self) -> None:
        while not self._closing.wait(self._after_s / 4):
            since_s = self._since_s
            if since_s is not None and not self._is_told and time.monotonic() - since_s >= self._after_s:
                self._is_told = True
                self._on_stall()
