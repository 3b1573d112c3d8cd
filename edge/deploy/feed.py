"""The frames of a finite source through an engine: while one canvas is inferred, the other is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.errors import EndOfStream, SourceError
from edge.protocols import FrameSource
from edge.types import FrameHeader, Letterbox, Preprocess
from edge.vision.letterbox import fill_border, paste

__all__ = ["Placed", "Runner", "feed"]

_READ_TIMEOUT_S = 60.0
Placed = tuple[FrameHeader, Letterbox]
T_co = TypeVar("T_co", covariant=True)


class Runner(Protocol[T_co]):
    """What `Engine` and `ActivationEngine` have in common."""

    @property
    def preprocess(self) -> Preprocess:
        """The preprocess that is built into the engine."""
        ...

    @property
    def max_batch(self) -> int:
        """Rows of each canvas."""
        ...

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two or more canvases."""
        ...

    def start(self, index: int, count: int) -> None:
        """Begin inference of rows 0..count-1 of canvas `index`."""
        ...

    def wait(self, index: int) -> T_co:
        """Return what came out of the last `start(index, count)`."""
        ...


def feed(source: FrameSource, engine: Runner[T_co]) -> Iterator[tuple[Sequence[Placed], T_co]]:
    """Yield what comes out of each canvas, and which frames were on its rows; in order, until the source ends.

    What is yielded is valid until the next step; the next canvas is inferred meanwhile.

    Raises:
        EdgeError: what source and engine raise; `EndOfStream` is the end of the iteration.
    """
    running: tuple[int, list[Placed]] | None = None
    index = 0
    while True:
        filled = _fill(source, engine, index)
        output = None if running is None else (running[1], engine.wait(running[0]))
        if filled:
            engine.start(index, len(filled))
        if output is not None:
            yield output
        if not filled:
            return
        running, index = (index, filled), 1 - index


def _fill(source: FrameSource, engine: Runner[T_co], index: int) -> list[Placed]:
    canvas = engine.canvases[index]
    placed: list[Placed] = []
    while len(placed) < engine.max_batch:
        try:
            frame = source.read(_READ_TIMEOUT_S)
        except EndOfStream:
            break
        if frame is None:
            raise SourceError(f"{source.stream}: no frame within {_READ_TIMEOUT_S:.0f} s")
        row = canvas[len(placed)]
        fill_border(row, frame.letterbox, pad_value=engine.preprocess.pad_value)
        paste(frame.image, row, frame.letterbox)
        placed.append((frame.header, frame.letterbox))
    return placed
