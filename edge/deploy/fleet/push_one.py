"""Who does what is asked of one target of many."""

from __future__ import annotations

import threading
from typing import Protocol

from edge.config.targets import Target
from edge.delivery.event import OnEvent
from edge.delivery.outcome import Outcome

__all__ = ["PushOne"]


class PushOne(Protocol):
    """Does all there is to do for one target, tells `on_event` of it, and returns how it ended; raises nothing.

    It returns within a second once `stop` is set: it closes the connection, and the device ends or undoes on its own.
    Its child processes are in a session of their own, so that Ctrl-C at the terminal reaches the caller alone.
    """

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        """Return how it ended."""
        ...
