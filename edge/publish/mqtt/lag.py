"""Whether messages leave more slowly than they come, in words for the log and for the device's state."""

from __future__ import annotations

import time
from collections.abc import Callable

from edge.publish.mqtt.window import Window
from edge.publish.outbox.outbox import Outbox

__all__ = ["Lag"]

_LOOK_S = 0.25


class Lag:
    """Lives as long as one connection: what became late while there was none is no lag.

    Messages that become late for `after_s` are a lag; it is over when none has become late for as long, and none waits.
    """

    def __init__(self, outbox: Outbox, *, after_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._outbox = outbox
        self._after_s = after_s
        self._now_s = now_s
        self._next_look_s = now_s()
        self._late = outbox.late
        self._late_from_s: float | None = None
        self._late_until_s = now_s()
        self.reason: str | None = None

    def look(self, window: Window) -> bool:
        """Look at the outbox now and then; return whether there is a lag now and was none before, or the reverse."""
        now_s = self._now_s()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + _LOOK_S
        if self._outbox.late != self._late:
            self._late = self._outbox.late
            self._late_until_s = now_s
            self._late_from_s = now_s if self._late_from_s is None else self._late_from_s
        elif now_s - self._late_until_s > self._after_s:
            self._late_from_s = None
        return self._judge(now_s, window)

    def _judge(self, now_s: float, window: Window) -> bool:
        if self.reason is None and self._late_from_s is not None and now_s - self._late_from_s >= self._after_s:
            self.reason = self._words(window)
            return True
        if self.reason is not None and self._late_from_s is None and not self._outbox.has_replay:
            self.reason = None
            return True
        return False

    def _words(self, window: Window) -> str:
        round_trip_ms = 1000 * (window.round_trip_s or 0.0)
        return (
            f"publishing cannot keep up: the oldest message has waited {self._outbox.oldest_s():.0f} s; "
            f"the broker takes {window.size} at a time with a round trip of {round_trip_ms:.0f} ms"
        )
