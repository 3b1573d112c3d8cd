"""Writes frames with their boxes drawn in, for a person to look at; not for every frame of a service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.errors import ConfigError
from edge.media.images import draw_boxes, write_image
from edge.runtime.pipeline.batcher import Batch
from edge.types import FrameResult, Letterbox, StreamId

__all__ = ["Annotator"]


class Annotator:
    """Writes at most one picture per stream and `every_s` seconds of its own time: `STREAM-FRAME.jpg` in `folder`."""

    def __init__(self, folder: Path, *, labels: Sequence[str], every_s: float) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: no folder for annotated frames: {error.strerror}") from None
        self._folder = folder
        self._labels = labels
        self._every_ns = round(every_s * 1e9)
        self._next_pts_ns: dict[StreamId, int] = {}

    def write(self, batch: Batch, pixels: NDArray[np.uint8], results: list[FrameResult]) -> None:
        """Write those frames of a batch that are due.

        Args:
            pixels: uint8 (B, H, W, 3) RGB, a copy of the batch's canvas.
        """
        for row, result in enumerate(results):
            header = result.header
            if header.pts_ns >= self._next_pts_ns.get(header.stream, 0):
                self._next_pts_ns[header.stream] = header.pts_ns + self._every_ns
                self._write_one(pixels[row], batch.rows[row].letterbox, result)

    def _write_one(self, canvas: NDArray[np.uint8], letterbox: Letterbox, result: FrameResult) -> None:
        top, left = letterbox.pad_top, letterbox.pad_left
        fitted, source = letterbox.fitted, letterbox.source
        image = np.ascontiguousarray(canvas[top : top + fitted.height, left : left + fitted.width])
        found = result.detections
        xyxy = found.xyxy * np.array([fitted.width / source.width, fitted.height / source.height] * 2, np.float32)
        texts = [f"{self._labels[i]} {score:.2f}" for i, score in zip(found.class_id, found.score, strict=True)]
        draw_boxes(image, xyxy, texts, found.class_id.tolist())
        write_image(self._folder / f"{result.header.stream}-{result.header.frame:06d}.jpg", image)
