"""The values of a batch: who holds which row of a canvas, and what lies there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from edge.types import FrameHeader, Letterbox, StreamId

__all__ = ["Batch", "OpenBatch", "Row", "Ticket", "Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One frame in a batch."""

    header: FrameHeader
    letterbox: Letterbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A closed batch: `rows[i]` lies in row i of canvas `index`, which is the taker's until it is given back."""

    index: int
    rows: tuple[Row, ...]
    closed_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ticket:
    """A reserved row."""

    stream: StreamId
    canvas: int
    row: int


@dataclass(slots=True, eq=False)
class Turn:
    """The place of one who asked for a row. Once `is_over`, `ticket` is the row, or None: there is none any more."""

    stream: StreamId
    is_live: bool
    ticket: Ticket | None = None
    is_over: bool = False
    _came: threading.Event | None = None

    def queue(self) -> None:
        """Make it one that can be waited for."""
        self._came = threading.Event()

    def end(self, ticket: Ticket | None) -> None:
        """It has come."""
        self.ticket, self.is_over = ticket, True
        if self._came is not None:
            self._came.set()

    def wait(self) -> Ticket | None:
        """Return the ticket, once there is one or none any more."""
        if self._came is not None:
            self._came.wait()
        return self.ticket


@dataclass(slots=True)
class OpenBatch:
    """A batch that still takes frames. `due_ns` is that of its first frame, None before one has come."""

    canvas: int
    rows: list[Row | None] = field(default_factory=list)  # None: reserved and not filled, or given up
    given_up: list[int] = field(default_factory=list)
    live_row_of: dict[StreamId, int] = field(default_factory=dict)
    writers: int = 0
    due_ns: int | None = None

    @property
    def count(self) -> int:
        """Rows that are filled, or will be."""
        return len(self.rows) - len(self.given_up)

    def rows_of(self, stream: StreamId) -> int:
        """Return how many filled rows a stream has."""
        return sum(row is not None and row.header.stream == stream for row in self.rows)

    def out_of_order(self) -> list[tuple[list[int], list[int]]]:
        """Return for each stream whose frames do not lie in their order the rows in which they lie, and belong."""
        lies_in: dict[StreamId, list[tuple[int, int]]] = {}
        for index, row in enumerate(self.rows):
            if row is not None:
                lies_in.setdefault(row.header.stream, []).append((row.header.frame, index))
        found = []
        for frames in lies_in.values():
            if frames != sorted(frames):
                found.append(([index for _, index in sorted(frames)], [index for _, index in frames]))
        return found

    def new_row(self) -> int:
        """Return a row that nobody has."""
        if self.given_up:
            return self.given_up.pop()
        self.rows.append(None)
        return len(self.rows) - 1

    def fill(self, row: int, content: Row, *, due_ns: int) -> None:
        """Put a frame into a reserved row; the deadline never moves to a later time."""
        self.rows[row] = content
        self.writers -= 1
        self.due_ns = due_ns if self.due_ns is None else min(self.due_ns, due_ns)

    def give_up(self, row: int, stream: StreamId) -> None:
        """Make a row one that nobody has."""
        self.rows[row] = None
        self.given_up.append(row)
        self.live_row_of.pop(stream, None)
        if not self.count:
            self.due_ns = None
