"""What is wrong with the disk of a spool, as people are told it: at once, in one wording, and over only when it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["DiskTrouble"]

_CALM_S = 10.0
_DAMAGE_S = 60.0  # for so long people are told that the file was damaged; the gap records stay

_log = logging.getLogger(__name__)


class DiskTrouble:
    """Thread-safe. Log, metrics, state and status page say what `told` says.

    A disk that works and fails in turns is in trouble until it has worked for `calm_s`, and another wording is told no
    sooner than `calm_s` after the one before.

    Attributes:
        now: what is wrong at this moment; None: nothing.
        told: what people are told to be wrong; None: nothing.
    """

    def __init__(
        self,
        path: Path,
        *,
        calm_s: float = _CALM_S,
        now_s: Callable[[], float] = time.monotonic,
        now: str | None = None,
    ) -> None:
        self._path = path
        self._calm_s = calm_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._wrong_s = self._worded_s = self._damaged_s = -float("inf")
        self.now = self.told = now

    @property
    def alarm(self) -> str | None:
        """What is wrong and what it means, in one sentence; None: nothing is."""
        said = []
        if self.told is not None:
            said.append(f"messages are in memory only, which a power cut takes: {self.told}")
        if self._now_s() - self._damaged_s < _DAMAGE_S:
            said.append("the file of messages was damaged and is set aside: what is missing is declared")
        return "; ".join(said) or None

    def say(self, trouble: str | None) -> None:
        """Take note of what is wrong now; None: nothing is."""
        with self._lock:
            self.now = trouble
            self._look()

    def look(self) -> None:
        """Let time pass: what has not come back for long enough is over."""
        if self.now != self.told:
            with self._lock:
                self._look()

    def was_damaged(self) -> None:
        """Take note that the file was another than we wrote, and that there is a new one."""
        self._damaged_s = self._now_s()

    def _look(self) -> None:
        now_s = self._now_s()
        if self.now is not None:
            self._wrong_s = now_s
        if self.now == self.told:
            return
        since_s = self._wrong_s if self.now is None else self._worded_s
        if self.told is not None and now_s - since_s < self._calm_s:
            return
        self.told, self._worded_s = self.now, now_s
        if self.told is None:
            _log.info("messages are kept on the disk again path=%s", self._path)
        else:
            _log.warning("messages are in memory only path=%s error=%s", self._path, self.told)
