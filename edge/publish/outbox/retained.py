"""Retained messages: the latest of each topic, all again after a reconnect; a last word behind what came before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from edge.publish.outbox.message import Entry

__all__ = ["Retained"]

# A message is not held for ever by others that do not get through: those of a disk that does not answer, or late ones
# of a broker that is too slow for them.
_PATIENCE_S = 30.0


@dataclass(slots=True)
class _LastWord:
    """Waits for what was accepted before it: `before_ticket` is the ticket of the next one."""

    stream: str
    before_ticket: int
    first_unsettled: float = 0.0
    in_vain_since_s: float | None = None  # none: nothing can get through, because there is no connection

    def is_due(self, first: float, now_s: float) -> bool:
        """Return whether nothing has to go before it any more; asked while there is a connection."""
        if first != self.first_unsettled or self.in_vain_since_s is None:
            self.first_unsettled, self.in_vain_since_s = first, now_s
        return first >= self.before_ticket or now_s - self.in_vain_since_s >= _PATIENCE_S


class Retained:
    """Not thread-safe: an outbox holds its lock.

    `first_of` a stream is a ticket that a last word on it goes behind as long as it is not settled; infinity: none.
    """

    def __init__(self, *, first_of: Callable[[str], float], now_s: Callable[[], float]) -> None:
        self._first_of = first_of
        self._now_s = now_s
        self._latest: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._held: dict[str, _LastWord] = {}

    def __bool__(self) -> bool:
        """Whether one could be sent now."""
        for topic, word in list(self._held.items()):
            if word.is_due(self._first_of(word.stream), self._now_s()):
                del self._held[topic]
                self._unsent[topic] = None
        return bool(self._unsent)

    def is_latest(self, entry: Entry) -> bool:
        return self._latest.get(entry.topic) is entry

    def put(self, entry: Entry, *, before_ticket: int) -> bool:
        """Put a new one in the place of the one before; return whether that was neither sent nor settled.

        `before_ticket` is that of the next numbered message.
        """
        before, is_unsent = self._latest.get(entry.topic), entry.topic in self._unsent or entry.topic in self._held
        self._latest[entry.topic] = entry
        if entry.behind is None:
            self._held.pop(entry.topic, None)
            self._unsent[entry.topic] = None
        else:  # another wording of the same word is behind more, and has no more patience
            self._unsent.pop(entry.topic, None)
            word = self._held.setdefault(entry.topic, _LastWord(entry.behind, before_ticket))
            word.before_ticket = before_ticket
        return before is not None and is_unsent and not before.is_settled

    def take(self) -> Entry:
        """Return the next one to send; there has to be one."""
        topic = next(iter(self._unsent))
        del self._unsent[topic]
        return self._latest[topic]

    def put_back_all(self) -> None:
        """Send all again: the connection was lost."""
        self._unsent = {topic: None for topic in self._latest if topic not in self._held}
        for word in self._held.values():
            word.in_vain_since_s = None

    def remove(self, entry: Entry) -> None:
        """Do not send it again with the next connection."""
        if self.is_latest(entry):
            del self._latest[entry.topic]

    def settle(self, entry: Entry) -> None:
        """Take note that one is counted as delivered: it is only sent again."""
        if self.is_latest(entry):
            self._latest[entry.topic] = msgspec.structs.replace(entry, is_settled=True)

    def waiting(self) -> int:
        """Return how many wait that are not counted yet."""
        return sum(not self._latest[topic].is_settled for topic in (*self._unsent, *self._held))
