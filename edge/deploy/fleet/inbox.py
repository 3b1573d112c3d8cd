"""What the driver of a fleet waits for: news from its threads, and Ctrl-C."""

from __future__ import annotations

import queue
from dataclasses import dataclass

from edge.deadline import Deadline
from edge.delivery.event import Event
from edge.delivery.outcome import Outcome

__all__ = ["Finished", "Inbox", "Interrupt", "Item"]


@dataclass(frozen=True, slots=True)
class Finished:
    """The thread of a target has come to its end."""

    outcome: Outcome


class Interrupt:
    """Somebody wants it to end: the first one begins nothing new, the second one ends what runs."""


Item = Event | Finished | Interrupt


class Inbox:
    """Items in the order in which they came, from any thread or signal handler, to one reader."""

    def __init__(self) -> None:
        # Unlike the locks of the other queues, this one may be taken by a signal handler in the midst of a get.
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, item: Item) -> None:
        """Add an item; never waits."""
        self._items.put(item)

    def interrupt(self) -> None:
        """Add an interrupt, as of Ctrl-C; may be called by a signal handler."""
        self._items.put(Interrupt())

    def get(self, *, until: Deadline | None) -> Item | None:
        """Return the next item; None once `until` is over; without one it waits for ever."""
        try:
            return self._items.get(timeout=None if until is None else until.left_s)
        except queue.Empty:
            return None
