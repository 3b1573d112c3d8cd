"""Detections of a finite source through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

from collections.abc import Iterator

from edge.errors import EndOfStream, SourceError
from edge.protocols import Engine, FrameSource
from edge.types import Detections, FrameHeader, Letterbox
from edge.vision.detect import Detector
from edge.vision.letterbox import fill_border, paste

__all__ = ["detect_all"]

_READ_TIMEOUT_S = 60.0
_Placed = tuple[FrameHeader, Letterbox]


def detect_all(source: FrameSource, engine: Engine, detector: Detector) -> Iterator[tuple[FrameHeader, Detections]]:
    """Yield the detections of each frame of a finite, opened source, in order.

    While one canvas is inferred the other is filled.

    Raises:
        EdgeError: what source and engine raise; `EndOfStream` is the end of the iteration.
    """
    running: tuple[int, list[_Placed]] | None = None
    index = 0
    while True:
        filled = _fill(source, engine, index)
        output = engine.wait(running[0]) if running is not None else None
        if filled:
            engine.start(index, len(filled))
        if running is not None and output is not None:
            found = detector.detect(output, [letterbox for _, letterbox in running[1]])
            yield from zip((header for header, _ in running[1]), found, strict=True)
        if not filled:
            return
        running, index = (index, filled), 1 - index


def _fill(source: FrameSource, engine: Engine, index: int) -> list[_Placed]:
    canvas = engine.canvases[index]
    placed: list[_Placed] = []
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
