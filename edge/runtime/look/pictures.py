"""The latest picture of each stream, for those who look: without them nothing is copied, drawn or encoded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.media.images import encode_jpeg, resize
from edge.protocols import Publisher
from edge.publish.message import RetainedBytes
from edge.runtime.pipeline.annotate import boxed
from edge.runtime.pipeline.rows import Batch, Row
from edge.types import FrameResult, ImageSize, StreamId

__all__ = ["PicturePublisher", "Pictures"]

_QUALITIES = (70, 50, 30)
_MOST_BYTES = 120_000  # what a broker of a cloud takes (AWS IoT: 128 KiB)
_LEAST_EXPIRY_S = 60
_EXPIRY_TIMES = 10  # of the time between two pictures
_FRESH_S = 5.0
_AGAIN_S = 0.2


@dataclass(slots=True)
class _Picture:
    """`seen` holds the frame until somebody asks for it once more; then it is `jpeg`."""

    at_s: float
    seen: tuple[Row, NDArray[np.uint8], FrameResult] | None
    jpeg: bytes = b""


class Pictures:
    """An `Onlooker` of the inference loop. Each question is good for one copy of one frame."""

    def __init__(self, *, labels: Sequence[str], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._labels = labels
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._wanted: set[StreamId] = set()
        self._pictures: dict[StreamId, _Picture] = {}
        self.encoded = 0

    def wants(self, batch: Batch) -> Sequence[int]:
        """Called for every batch."""
        if not self._wanted:
            return ()
        first: dict[StreamId, int] = {}
        for index, row in enumerate(batch.rows):
            if row.header.stream in self._wanted:
                first.setdefault(row.header.stream, index)
        return list(first.values())

    def see(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> None:
        with self._lock:
            self._wanted.discard(row.header.stream)
            self._pictures[row.header.stream] = _Picture(self._clock_s(), (row, pixels, result))

    def ask(self, stream: StreamId) -> bytes | None:
        """Return as JPEG what came of the question before, and ask for the next; None: nothing has come yet."""
        with self._lock:
            picture = self._pictures.get(stream)
            age_s = float("inf") if picture is None else self._clock_s() - picture.at_s
            if age_s >= _AGAIN_S:
                self._wanted.add(stream)
        if picture is None or age_s > _FRESH_S:
            return None
        if picture.seen is not None:
            picture.jpeg, picture.seen = self._encode(*picture.seen), None
        return picture.jpeg

    def forget(self) -> None:
        """Drop what was not asked for in a while."""
        with self._lock:
            old = self._clock_s() - _FRESH_S
            for stream in [name for name, one in self._pictures.items() if one.at_s < old]:
                del self._pictures[stream]

    def _encode(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> bytes:
        self.encoded += 1
        return _bounded_jpeg(boxed(pixels, row.letterbox, result, labels=self._labels))


def _bounded_jpeg(image: NDArray[np.uint8]) -> bytes:
    """Return a JPEG of at most `_MOST_BYTES`: of less quality where needed, then of half the size."""
    for quality in _QUALITIES:
        if len(jpeg := encode_jpeg(image, quality=quality)) <= _MOST_BYTES:
            return jpeg
    height, width = image.shape[:2]
    return _bounded_jpeg(resize(image, ImageSize(width=max(width // 2, 1), height=max(height // 2, 1))))


class PicturePublisher:
    """Publishes the newest picture of each stream every so often; a stream without new frames has none.

    Args:
        every_s: between two pictures of a stream.
        clock_s: monotonic seconds.
    """

    def __init__(
        self,
        pictures: Pictures,
        publisher: Publisher,
        *,
        streams: Callable[[], Sequence[str]],
        every_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pictures = pictures
        self._publisher = publisher
        self._streams = streams
        self._every_s = every_s
        self._clock_s = clock_s
        self._due_s: dict[str, float] = {}

    def tick(self) -> None:
        """Publish what is due and has come since it was asked for in an earlier tick."""
        now_s, expiry_s = self._clock_s(), max(_LEAST_EXPIRY_S, round(_EXPIRY_TIMES * self._every_s))
        for stream in self._streams():
            due_s = self._due_s.get(stream, now_s)
            jpeg = self._pictures.ask(StreamId(stream)) if now_s >= due_s else None
            if jpeg is not None:
                self._due_s[stream] = max(due_s + self._every_s, now_s)
                self._publisher.publish(RetainedBytes(f"streams/{stream}/picture", jpeg, expiry_s))
