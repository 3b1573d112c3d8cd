"""Runs an engine on golden frames as a device does: whole batches of the deployed size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.errors import TensorMismatchError
from edge.protocols import Engine
from edge.types import Detections, ImageSize, Letterbox
from edge.vision.detect import Detector

__all__ = ["detect_golden"]


def detect_golden(canvases: Sequence[NDArray[np.uint8]], engine: Engine, detector: Detector) -> list[Detections]:
    """Return the detections on each canvas, in pixels of the canvas.

    Every batch is full: the first canvases fill up the last one, because a short batch may run another kernel.

    Args:
        canvases: uint8 (H, W, 3) RGB each, letterboxed already.
        engine: nobody else uses it meanwhile.
        detector: decodes and suppresses.

    Raises:
        TensorMismatchError: if a canvas is not of the engine's size.
        EngineError: if an inference failed.
    """
    size = engine.preprocess.size
    for canvas in canvases:
        if canvas.shape != (size.height, size.width, 3):
            raise TensorMismatchError(f"a golden frame is {canvas.shape}, the engine takes {size}")
    whole = _whole(size)
    found: list[Detections] = []
    for first in range(0, len(canvases), engine.max_batch):
        for row in range(engine.max_batch):
            engine.canvases[0][row] = canvases[(first + row) % len(canvases)]
        engine.start(0, engine.max_batch)
        found += detector.detect(engine.wait(0), [whole] * engine.max_batch)
    return found[: len(canvases)]


def _whole(size: ImageSize) -> Letterbox:
    return Letterbox(source=size, fitted=size, canvas=size, pad_left=0, pad_top=0)
