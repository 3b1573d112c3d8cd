"""Retained messages: only the latest of each topic, and all of them again after a reconnect."""

from __future__ import annotations

from collections.abc import Container

from edge.publish.outbox.entry import Entry
from edge.publish.outbox.last_word import Lanes, LastWord

__all__ = ["Retained"]


class Retained:
    """Not thread-safe: an outbox holds its lock. `lanes` are those of the messages that a last word goes behind."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._latest: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._held: dict[str, LastWord] = {}
        self._settled: set[Entry] = set()

    def __bool__(self) -> bool:
        """Whether one could be sent now."""
        if self._held:
            for topic in [topic for topic, word in self._held.items() if word.is_due()]:
                del self._held[topic]
                self._unsent[topic] = None
        return bool(self._unsent)

    def latest(self, topic: str) -> Entry | None:
        """Return the latest of a topic."""
        return self._latest.get(topic)

    def is_latest(self, entry: Entry) -> bool:
        """Return whether nothing newer has come on its topic."""
        return self._latest.get(entry.topic) is entry

    def put(self, entry: Entry, *, before_ticket: int) -> None:
        """Put a new one in the place of the one before; `before_ticket` is that of the next numbered message."""
        self._latest[entry.topic] = entry
        if entry.behind is None:
            self._held.pop(entry.topic, None)
            self._unsent[entry.topic] = None
        elif entry.topic not in self._held:  # otherwise it is another wording of the same word
            self._unsent.pop(entry.topic, None)
            self._held[entry.topic] = LastWord(entry.behind, self._lanes, before_ticket=before_ticket)

    def take(self) -> Entry:
        """Return the next one to send; there has to be one."""
        topic = next(iter(self._unsent))
        del self._unsent[topic]
        return self._latest[topic]

    def is_unsent(self, topic: str) -> bool:
        """Return whether the latest of a topic waits."""
        return topic in self._unsent or topic in self._held

    def put_back(self, entry: Entry) -> None:
        """Send the latest of its topic again."""
        self._unsent[entry.topic] = None

    def put_back_all(self, but: Entry | None) -> None:
        """Send all again but one: the connection was lost."""
        self._unsent = {
            topic: None for topic, latest in self._latest.items() if latest is not but and topic not in self._held
        }
        for word in self._held.values():
            word.wait_anew()

    def remove(self, entry: Entry) -> None:
        """Do not send it again with the next connection."""
        if self.is_latest(entry):
            del self._latest[entry.topic]

    def is_settled(self, entry: Entry) -> bool:
        """Return whether it has been counted already: it is only being sent again."""
        return entry in self._settled

    def settle(self, entry: Entry, in_flight: Container[Entry]) -> None:
        """Take note of a message that is delivered or declared, of whatever lane.

        A retained one is remembered as counted, for as long as it is sent again or may be.
        """
        for word in self._held.values():
            word.settled(entry)
        if entry.is_retained:
            known = {*self._settled, entry}
            self._settled = {one for one in known if one in in_flight or self.is_latest(one)}

    def waiting(self) -> int:
        """Return how many wait that are not counted yet."""
        return sum(not self.is_settled(self._latest[topic]) for topic in (*self._unsent, *self._held))

    def clear_unsent(self) -> None:
        """Send nothing."""
        self._unsent.clear()
        self._held.clear()
