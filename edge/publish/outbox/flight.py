"""What is on its way to the broker, and the one message at which connections break."""

from __future__ import annotations

from collections.abc import Iterator

from edge.publish.outbox.entry import Entry

__all__ = ["Flight"]


class Flight:
    """Entries in the order of their sending. Not thread-safe: an outbox holds its lock.

    Attributes:
        suspect: the entry that is to be sent alone, in flight or waiting outside of the lanes; None: there is none.
    """

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        self.suspect: Entry | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[Entry]:
        return reversed(self._entries)

    @property
    def waiting(self) -> Entry | None:
        """The suspect while it is not in flight."""
        return self.suspect if self.suspect not in self._entries else None

    def unsettled(self) -> list[Entry]:
        """Return all in flight, and a suspect that waits."""
        waiting = self.waiting
        return [*self._entries] if waiting is None else [*self._entries, waiting]

    def add(self, entry: Entry) -> None:
        """Take note that it is on its way."""
        self._entries[entry] = None

    def remove(self, entry: Entry) -> bool:
        """Take note that it is not on its way any more; return whether it was."""
        return self._entries.pop(entry, entry) is not entry

    def clear_suspect(self, entry: Entry) -> None:
        """Suspect it no more."""
        if entry is self.suspect:
            self.suspect = None

    def clear(self) -> None:
        """Forget all in flight."""
        self._entries.clear()
