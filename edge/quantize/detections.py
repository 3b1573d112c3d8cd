"""Detections of a finite source through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

from collections.abc import Iterator

from edge.protocols import Engine, FrameSource
from edge.quantize.feed import feed
from edge.types import Detections, FrameHeader
from edge.vision.detect import Detector

__all__ = ["detect_all"]


def detect_all(source: FrameSource, engine: Engine, detector: Detector) -> Iterator[tuple[FrameHeader, Detections]]:
    """Yield the detections of each frame of a finite, opened source, in order.

    Raises:
        EdgeError: what source and engine raise; `EndOfStream` is the end of the iteration.
    """
    for placed, output in feed(source, engine):
        found = detector.detect(output, [letterbox for _, letterbox in placed])
        yield from zip((header for header, _ in placed), found, strict=True)
