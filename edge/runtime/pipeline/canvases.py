"""The pixels of batches: frames are copied to their rows, and rows are moved together before a batch is inferred."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.runtime.pipeline.rows import OpenBatch, Row, Ticket
from edge.types import Frame, Letterbox
from edge.vision.letterbox import fill_border, paste

__all__ = ["Canvases"]


class Canvases:
    """The engine's canvases, uint8 (rows, H, W, 3) each, and which border lies in which of their rows."""

    def __init__(self, canvases: Sequence[NDArray[np.uint8]], *, pad_value: int) -> None:
        self._canvases = canvases
        self._pad_value = pad_value
        self._borders: list[list[Letterbox | None]] = [[None] * len(canvas) for canvas in canvases]

    @property
    def rows(self) -> int:
        """How many rows each of them has."""
        return len(self._canvases[0])

    def copy(self, frame: Frame, ticket: Ticket) -> None:
        """Copy a frame to its row, and write the border around it if another one lies there.

        Raises:
            ValueError: if the image has not the size that its letterbox says.
        """
        canvas, borders = self._canvases[ticket.canvas][ticket.row], self._borders[ticket.canvas]
        if borders[ticket.row] != frame.letterbox:
            borders[ticket.row] = None
            fill_border(canvas, frame.letterbox, pad_value=self._pad_value)
            borders[ticket.row] = frame.letterbox
        paste(frame.image, canvas, frame.letterbox)

    def settle(self, batch: OpenBatch) -> tuple[Row, ...]:
        """Move the rows of a batch that nobody writes to any more to the front, in order; return them."""
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
