"""Writes frames, with their boxes drawn in for a person to look at, or as they are; not every frame of a service."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.errors import ConfigError, DatasetError
from edge.media.images import draw_boxes, resize, write_image
from edge.runtime.pipeline.rows import Batch, Row
from edge.types import FrameHeader, FrameResult, ImageSize, Letterbox, StreamId
from edge.vision.letterbox import inner

__all__ = ["Annotator", "boxed"]

_LEGIBLE_PX = 512
_log = logging.getLogger(__name__)


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
                _log.warning("annotated frames cannot be written, the run goes on without reason=%s", error)
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
        return header.pts_ns >= self._next_pts_ns.get(header.stream, 0)


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
