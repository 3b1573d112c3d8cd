"""Pictures of frames, with their boxes drawn in for a person to look at, or as they are.

The latest one of each stream is for those who look: without them nothing is copied, drawn or encoded. Others are
written to a folder; not every frame of a service.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.errors import ConfigError, DatasetError
from edge.media.images import draw_boxes, encode_jpeg, resize, write_image
from edge.protocols import Publisher
from edge.publish.message import RetainedBytes
from edge.runtime.pipeline.rows import Batch, Row
from edge.types import FrameHeader, FrameResult, ImageSize, Letterbox, StreamId
from edge.vision.boxes import inner

__all__ = ["Annotator", "PicturePublisher", "Pictures"]

_LEGIBLE_PX = 512
_log = logging.getLogger(__name__)
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
    """Publishes the newest picture of each stream every `every_s`; a stream without new frames has none."""

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


class Annotator:
    """Writes at most one picture per stream and `every_s` seconds of its own time: `STREAM-FRAME.jpg` in `folder`,
    `STREAM-FRAME-2.jpg` where an earlier run has written that.

    With `labels` boxes are drawn in; without, pictures are what the model sees, to calibrate and to prove with. One
    that was written before, as of a clip that begins again, is then left out.
    """

    def __init__(self, folder: Path, *, labels: Sequence[str] | None, every_s: float) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: no folder for frames: {error.strerror}") from None
        self._folder = folder
        self._labels = labels
        self._every_ns = round(every_s * 1e9)
        self._is_broken = False
        self._written: set[bytes] = set()
        self._next_pts_ns: dict[StreamId, int] = {}

    def wants(self, batch: Batch) -> Sequence[int]:
        return [row for row, one in enumerate(batch.rows) if self._is_due(one.header)]

    def see(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> None:
        """Write a frame; of two of a batch that were both due, the first."""
        if self._is_due(row.header):
            self._next_pts_ns[row.header.stream] = row.header.pts_ns + self._every_ns
            if self._labels is None:
                picture = inner(pixels, row.letterbox)
                if not self._is_new(picture):
                    return
            else:
                picture = boxed(pixels, row.letterbox, result, labels=self._labels)
            self._write(self._free(f"{row.header.stream}-{row.header.frame:06d}"), picture)

    def _write(self, path: Path, picture: NDArray[np.uint8]) -> None:
        """Write a picture; where that cannot be done the service goes on without, and says so once."""
        try:
            write_image(path, picture)
        except DatasetError as error:
            if not self._is_broken:
                _log.warning("pictures cannot be written, the run goes on without reason=%s", error)
            self._is_broken = True
            with contextlib.suppress(OSError):
                path.unlink()  # what there was room for is no picture
        else:
            self._is_broken = False

    def _free(self, name: str) -> Path:
        """Return where a picture is written: those of an earlier run, of which labels may be drawn, stay."""
        path, number = self._folder / f"{name}.jpg", 1
        while path.exists():
            number += 1
            path = self._folder / f"{name}-{number}.jpg"
        return path

    def _is_new(self, picture: NDArray[np.uint8]) -> bool:
        digest = hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
        is_new = digest not in self._written
        self._written.add(digest)
        return is_new

    def _is_due(self, header: FrameHeader) -> bool:
        next_pts_ns = self._next_pts_ns.get(header.stream, 0)
        # Time before that of the last picture is that of a stream which begins anew, by a reload.
        return not next_pts_ns - self._every_ns <= header.pts_ns < next_pts_ns


def boxed(
    canvas: NDArray[np.uint8], letterbox: Letterbox, result: FrameResult, *, labels: Sequence[str]
) -> NDArray[np.uint8]:
    """Return the frame on a canvas without its border, uint8 (height, width, 3), boxes drawn in.

    It has the size to which it was fitted, or the least multiple of it that is wide enough for labels to be read.
    """
    fitted, source = letterbox.fitted, letterbox.source
    times = -(-_LEGIBLE_PX // fitted.width)
    size = ImageSize(width=fitted.width * times, height=fitted.height * times)
    image = np.ascontiguousarray(resize(inner(canvas, letterbox), size))
    found = result.detections
    xyxy = found.xyxy * np.array([size.width / source.width, size.height / source.height] * 2, np.float32)
    texts = [f"{labels[i]} {score:.2f}" for i, score in zip(found.class_id, found.score, strict=True)]
    draw_boxes(image, xyxy, texts, found.class_id.tolist())
    return image
