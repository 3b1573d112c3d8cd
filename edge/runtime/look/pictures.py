"""The latest picture of each stream, for those who look: without them nothing is copied, drawn or encoded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.media.images import encode_jpeg
from edge.runtime.pipeline.annotate import boxed
from edge.runtime.pipeline.rows import Batch, Row
from edge.types import FrameResult, StreamId

__all__ = ["Pictures"]

_QUALITY = 70
_FRESH_S = 5.0
_AGAIN_S = 0.2


@dataclass(slots=True)
class _Picture:
    """`seen` holds the frame until somebody asks for it once more; then it is `jpeg`."""

    at_s: float
    seen: tuple[Row, NDArray[np.uint8], FrameResult] | None
    jpeg: bytes = b""


class Pictures:
    """An `Onlooker` of the inference loop. Each question is good for one copy of one frame.

    Attributes:
        encoded: how many pictures were made.
    """

    def __init__(self, *, labels: Sequence[str], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._labels = labels
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._wanted: set[StreamId] = set()
        self._pictures: dict[StreamId, _Picture] = {}
        self.encoded = 0

    def wants(self, batch: Batch) -> Sequence[int]:
        """Return the rows of streams that somebody asked for; called for every batch."""
        if not self._wanted:
            return ()
        first: dict[StreamId, int] = {}
        for index, row in enumerate(batch.rows):
            if row.header.stream in self._wanted:
                first.setdefault(row.header.stream, index)
        return list(first.values())

    def see(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> None:
        """Keep a frame for the one who asked."""
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
        """Let go of what nobody has asked for in a while."""
        with self._lock:
            old = self._clock_s() - _FRESH_S
            for stream in [name for name, one in self._pictures.items() if one.at_s < old]:
                del self._pictures[stream]

    def _encode(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> bytes:
        self.encoded += 1
        return encode_jpeg(boxed(pixels, row.letterbox, result, labels=self._labels), quality=_QUALITY)
