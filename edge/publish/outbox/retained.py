"""Retained messages: only the latest of each topic, and all of them again after a reconnect."""

from __future__ import annotations

from collections.abc import Container

from edge.publish.outbox.entry import Entry

__all__ = ["Retained"]


class Retained:
    """Not thread-safe: an outbox holds its lock."""

    def __init__(self) -> None:
        self._latest: dict[str, Entry] = {}
        self._unsent: dict[str, None] = {}
        self._settled: set[Entry] = set()

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def latest(self, topic: str) -> Entry | None:
        """Return the latest of a topic."""
        return self._latest.get(topic)

    def is_latest(self, entry: Entry) -> bool:
        """Return whether nothing newer has come on its topic."""
        return self._latest.get(entry.topic) is entry

    def put(self, entry: Entry) -> None:
        """Put a new one in the place of the one before."""
        self._latest[entry.topic] = entry
        self._unsent[entry.topic] = None

    def take(self) -> Entry:
        """Return the next one to send; there has to be one."""
        topic = next(iter(self._unsent))
        del self._unsent[topic]
        return self._latest[topic]

    def is_unsent(self, topic: str) -> bool:
        """Return whether the latest of a topic waits."""
        return topic in self._unsent

    def put_back(self, entry: Entry) -> None:
        """Send the latest of its topic again."""
        self._unsent[entry.topic] = None

    def put_back_all(self, but: Entry | None) -> None:
        """Send all again but one."""
        self._unsent = {topic: None for topic, latest in self._latest.items() if latest is not but}

    def remove(self, entry: Entry) -> None:
        """Do not send it again with the next connection."""
        if self.is_latest(entry):
            del self._latest[entry.topic]

    def is_settled(self, entry: Entry) -> bool:
        """Return whether it has been counted already: it is only being sent again."""
        return entry in self._settled

    def settle(self, entry: Entry, in_flight: Container[Entry]) -> None:
        """Remember that it is counted, for as long as it is sent again or may be."""
        if entry.is_retained:
            known = {*self._settled, entry}
            self._settled = {one for one in known if one in in_flight or self.is_latest(one)}

    def waiting(self) -> int:
        """Return how many wait that are not counted yet."""
        return sum(not self.is_settled(self._latest[topic]) for topic in self._unsent)

    def clear_unsent(self) -> None:
        """Send nothing."""
        self._unsent.clear()
