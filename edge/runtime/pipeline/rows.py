"""The values of a batch: who holds which row of a canvas, and what lies there.

The pixels of batches: frames are copied to their rows, and rows are moved together before a batch is inferred.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge.media.images import blacken, paste_without_alpha
from edge.types import Frame, FrameHeader, Letterbox, StreamId
from edge.vision.boxes import fill_border, inner, paste

__all__ = ["Batch", "Canvases", "OpenBatch", "Row", "Ticket", "Turn"]


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
        """Counts filled rows only."""
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
        self.rows[row] = None
        self.given_up.append(row)
        self.live_row_of.pop(stream, None)
        if not self.count:
            self.due_ns = None


class Canvases:
    """The engine's canvases, uint8 (rows, H, W, 3) each, and which border lies in which of their rows."""

    def __init__(self, canvases: Sequence[NDArray[np.uint8]], *, pad_value: int) -> None:
        self._canvases = canvases
        self._pad_value = pad_value
        self._borders: list[list[Letterbox | None]] = [[None] * len(canvas) for canvas in canvases]

    @property
    def rows(self) -> int:
        return len(self._canvases[0])

    def copy(self, frame: Frame, ticket: Ticket) -> None:
        """Copy a frame to its row, and write the border around it if another one lies there.
        Raises `ValueError` if the image has not the size that its letterbox says.
        """
        canvas, borders = self._canvases[ticket.canvas][ticket.row], self._borders[ticket.canvas]
        if borders[ticket.row] != frame.letterbox:
            borders[ticket.row] = None
            fill_border(canvas, frame.letterbox, pad_value=self._pad_value)
            borders[ticket.row] = frame.letterbox
        place, image = inner(canvas, frame.letterbox), frame.image
        if image.strides[1:] == (4, 1) and image.shape == place.shape:
            paste_without_alpha(image, place)
        else:
            paste(image, canvas, frame.letterbox)
        if frame.black:
            blacken(place, frame.black)

    def settle(self, batch: OpenBatch) -> tuple[Row, ...]:
        """Move the rows of a batch that no source writes to any more to the front, in order; return them."""
        # A row that was given up leaves a hole, and an engine infers the first rows: the last row moves into it.
        canvas, borders = self._canvases[batch.canvas], self._borders[batch.canvas]
        while None in batch.rows:
            hole, last = batch.rows.index(None), len(batch.rows) - 1
            canvas[hole], borders[hole] = canvas[last], borders[last]
            batch.rows[hole] = batch.rows[last]
            batch.rows.pop()
        self._order(batch)
        return tuple(row for row in batch.rows if row is not None)

    def _order(self, batch: OpenBatch) -> None:
        # A file's later frame may have come to lie in a hole before its earlier ones.
        canvas, borders = self._canvases[batch.canvas], self._borders[batch.canvas]
        for lies_in, belongs_in in batch.out_of_order():
            canvas[belongs_in] = canvas[lies_in]  # a copy of all first: lists index by value
            moved = [(batch.rows[row], borders[row]) for row in lies_in]
            for row, (content, border) in zip(belongs_in, moved, strict=True):
                batch.rows[row], borders[row] = content, border
