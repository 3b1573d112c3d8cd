"""The bounds of the store, and the alarm about a disk that does not take messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Bounds", "DiskTrouble"]

_CALM_S = 10.0
_DAMAGE_S = 60.0  # for so long people are told that the file was damaged; the gap records stay

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may lie on the disk, how old it may be, and how much of the disk is left to others."""

    max_bytes: int = 256 << 20
    max_age_s: float = 72 * 3600.0
    free_bytes: int = 1 << 30


class DiskTrouble:
    """Thread-safe. `now` is what is wrong at this moment, `told` what log, metrics, state and status page say.

    A disk that works and fails in turns is in trouble until it has worked for ten seconds, and another wording is told
    no sooner than that after the one before.
    """

    def __init__(self, path: Path, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now_s = now_s
        self._lock = threading.RLock()
        self._wrong_s = self._worded_s = self._damaged_s = -float("inf")
        self.now: str | None = None
        self.told: str | None = None

    @property
    def alarm(self) -> str | None:
        """The problem and its effect in one sentence; None: there is none."""
        said = []
        if self.told is not None:
            said.append(f"messages are in memory only, which a power cut takes: {self.told}")
        if self._now_s() - self._damaged_s < _DAMAGE_S:
            said.append("the file of messages was damaged and is set aside: what is missing is declared")
        return "; ".join(said) or None

    def say(self, trouble: str | None) -> None:
        """`trouble` None: nothing is wrong."""
        with self._lock:
            self.now, now_s = trouble, self._now_s()
            if trouble is not None:
                self._wrong_s = now_s
            since_s = self._wrong_s if trouble is None else self._worded_s
            if trouble == self.told or (self.told is not None and now_s - since_s < _CALM_S):
                return
            self.told, self._worded_s = trouble, now_s
            if trouble is None:
                _log.info("messages are kept on the disk again path=%s", self._path)
            else:
                _log.warning("messages are in memory only path=%s error=%s", self._path, trouble)

    def look(self) -> None:
        """Let time pass: what has not come back for long enough is over."""
        with self._lock:
            if self.now != self.told:
                self.say(self.now)

    def was_damaged(self) -> None:
        """Record that the file was another than we wrote, and that there is a new one."""
        self._damaged_s = self._now_s()
