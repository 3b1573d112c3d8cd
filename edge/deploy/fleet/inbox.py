"""The inbox of a fleet's driver: news from its threads, and Ctrl-C; and who does what is asked of one target."""

from __future__ import annotations

import queue
import threading
from typing import Protocol

from edge.config.targets import Target
from edge.deadline import Deadline
from edge.delivery.outcome import Event, OnEvent, Outcome

__all__ = ["Inbox", "Interrupt", "Item", "PushOne"]


class Interrupt:
    """Somebody wants it to end: the first one begins nothing new, the second one ends what runs."""


Item = Event | Outcome | Interrupt
"""An outcome: the thread of its target has come to its end."""


class Inbox:
    """Items in the order in which they came, from any thread or signal handler, to one reader."""

    def __init__(self) -> None:
        # Unlike the locks of the other queues, this one may be taken by a signal handler in the midst of a get.
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, item: Item) -> None:
        """Never waits."""
        self._items.put(item)

    def interrupt(self) -> None:
        """May be called by a signal handler."""
        self._items.put(Interrupt())

    def get(self, *, until: Deadline | None) -> Item | None:
        """Return None once `until` is over; wait for ever without one."""
        try:
            return self._items.get(timeout=None if until is None else until.left_s)
        except queue.Empty:
            return None


class PushOne(Protocol):
    """Does all there is to do for one target, tells `on_event` of it, and returns how it ended; raises nothing.

    It returns within a second once `stop` is set: it closes the connection, and the device ends or undoes on its own.
    Its child processes are in a session of their own, so that Ctrl-C at the terminal reaches the caller alone.
    """

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome: ...
