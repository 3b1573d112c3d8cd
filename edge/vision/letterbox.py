"""The letterbox: fit an image into the model's canvas without changing its aspect, and take boxes back out."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.types import ImageSize, Letterbox, PadPosition, Preprocess

__all__ = ["fill_border", "fit", "inner", "paste", "source_from_canvas_xyxy"]


def fit(source: ImageSize, preprocess: Preprocess) -> Letterbox:
    """Return where an image of size `source` lies on the canvas of `preprocess`.

    The fitted size is rounded to whole pixels and is at least one pixel; a centred image gets the smaller half of an
    odd remainder at the left and at the top.
    """
    canvas = preprocess.size
    scale = min(canvas.width / source.width, canvas.height / source.height)
    fitted = ImageSize(width=max(1, round(source.width * scale)), height=max(1, round(source.height * scale)))
    is_centred = preprocess.pad_position is PadPosition.CENTRE
    return Letterbox(
        source=source,
        fitted=fitted,
        canvas=canvas,
        pad_left=(canvas.width - fitted.width) // 2 if is_centred else 0,
        pad_top=(canvas.height - fitted.height) // 2 if is_centred else 0,
    )


def paste(image: NDArray[np.uint8], canvas: NDArray[np.uint8], letterbox: Letterbox) -> None:
    """Copy a fitted image, uint8 (h, w, 3), to its place on a canvas, uint8 (H, W, 3); the border is not touched."""
    inner(canvas, letterbox)[...] = image


def inner(canvas: NDArray[np.uint8], letterbox: Letterbox) -> NDArray[np.uint8]:
    """Return the part of a canvas, uint8 (H, W, 3), that holds the fitted image; a view."""
    top, left = letterbox.pad_top, letterbox.pad_left
    return canvas[top : top + letterbox.fitted.height, left : left + letterbox.fitted.width]


def fill_border(canvas: NDArray[np.uint8], letterbox: Letterbox, *, pad_value: int) -> None:
    """Write `pad_value` to everything outside the fitted image; needed only when a canvas row changes its letterbox."""
    top, left = letterbox.pad_top, letterbox.pad_left
    bottom, right = top + letterbox.fitted.height, left + letterbox.fitted.width
    canvas[:top] = pad_value
    canvas[bottom:] = pad_value
    canvas[top:bottom, :left] = pad_value
    canvas[top:bottom, right:] = pad_value


def source_from_canvas_xyxy(
    xyxy: NDArray[np.float32], letterboxes: Sequence[Letterbox], row: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Undo the letterboxes of a batch for its boxes.

    `xyxy`: float32 (N, 4), pixels of the canvas. `letterboxes`: of the frames of the batch. `row`: int64 (N,), which
    frame each box is of. Returns: float32 (N, 4), pixels of the source frame, clipped to it.
    """
    ways = np.array([_way_back(one) for one in letterboxes], np.float32).take(row, axis=0)
    source = xyxy - ways[:, 0]
    source *= ways[:, 1]
    np.maximum(source, 0, out=source)
    clipped: NDArray[np.float32] = np.minimum(source, ways[:, 2], out=source)
    return clipped


@functools.lru_cache(maxsize=64)
def _way_back(letterbox: Letterbox) -> NDArray[np.float32]:
    """Return float32 (3, 4): what to take off a box, what to multiply it by, and its limits."""
    source, fitted = letterbox.source, letterbox.fitted
    offset = [letterbox.pad_left, letterbox.pad_top] * 2
    scale = [source.width / fitted.width, source.height / fitted.height] * 2
    return np.array([offset, scale, [source.width, source.height] * 2], np.float32)
