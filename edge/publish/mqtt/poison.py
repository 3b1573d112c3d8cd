"""Poison messages: which one it is that makes a broker close the connection, and how large one may be before it does.

Some brokers say nothing: they close (mosquitto's `max_packet_size` under MQTT v3.1.1). Then the oldest message on its
way is suspected. After the second loss with the same one it is sent alone, behind others that the broker takes, and so
is all that was on its way with it: the broker's last acknowledgements may have been lost. The one at which the
connection breaks then is given up. Larger ones are not tried for a while, and those in between alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edge.publish.outbox.entry import Entry, Number

__all__ = ["PoisonMessages"]

_LOSSES_BEFORE_ALONE = 2
_MOST_ALONE = 64  # each takes a round trip
# A limit that was only guessed at is tried again: somebody may have raised it.
_BELIEVED_S = 600.0


class PoisonMessages:
    """Lives as long as its publisher; one thread."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._head: Entry | Number | str | None = None
        self._losses = 0
        self._careful = 0
        self._largest_taken_bytes = 0
        self._limit_bytes: int | None = None
        self._believed_until_s = 0.0

    @property
    def is_careful(self) -> bool:
        """Whether everything has to go alone for now."""
        return self._careful > 0

    def took(self, entry: Entry, size_bytes: int) -> None:
        """Take note that the broker has acknowledged a packet of this size."""
        self._careful -= self._careful > 0 and not entry.is_retained
        self._largest_taken_bytes = max(self._largest_taken_bytes, size_bytes)

    def is_hopeless(self, size_bytes: int) -> bool:
        """Return whether a packet is at least as large as one that broke the connection."""
        return self._is_limited() and self._limit_bytes is not None and size_bytes >= self._limit_bytes

    def is_doubtful(self, size_bytes: int) -> bool:
        """Return whether a packet had better go alone: larger than any that was taken, while there is a limit."""
        return self._is_limited() and size_bytes > self._largest_taken_bytes

    def lost(self, on_their_way: Sequence[tuple[Entry, int]], *, has_taken: bool) -> tuple[Entry | None, bool]:
        """Return whom a loss makes suspect, and whether that is proven.

        `on_their_way` are the unacknowledged, oldest first, with the sizes of their packets; `has_taken` says that this
        connection had others acknowledged. Only for connections that were closed: silence says nothing of a message.
        """
        if not on_their_way:
            return None, False
        entry, size_bytes = on_their_way[0]
        key = entry.number or (entry.topic if entry.is_retained else entry)  # a state is another entry each time
        self._losses = self._losses + 1 if key == self._head else 1
        self._head = key
        is_proven = self._losses >= _LOSSES_BEFORE_ALONE and self.is_careful
        if has_taken and len(on_their_way) == 1 and (is_proven or self.is_doubtful(size_bytes)):
            self._learn(size_bytes)
            return entry, True
        if self._losses < _LOSSES_BEFORE_ALONE and not self.is_careful:
            return None, False
        self._careful = max(self._careful, min(len(on_their_way), _MOST_ALONE))
        return entry, False

    def is_too_large(self, size_bytes: int) -> bool:
        """Return whether its size is what was wrong, as far as can be known."""
        return size_bytes > self._largest_taken_bytes

    def _learn(self, size_bytes: int) -> None:
        self._head, self._losses = None, 0
        if self.is_too_large(size_bytes):
            self._limit_bytes = size_bytes
            self._believed_until_s = self._now_s() + _BELIEVED_S

    def _is_limited(self) -> bool:
        return self._limit_bytes is not None and self._now_s() < self._believed_until_s
