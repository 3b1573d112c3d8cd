"""The letterbox: fit an image into the model's canvas without changing its aspect, and take boxes back out.

Non-maximum suppression, exact and class-aware, over a whole batch at once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.types import ImageSize, Letterbox, PadPosition, Preprocess

__all__ = ["fill_border", "fit", "inner", "iou_matrix", "kept_by_nms", "paste", "source_from_canvas_xyxy"]


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


FloatArray = NDArray[np.float32]

_LEAST = np.finfo(np.float32).tiny
_PAIRS_AT_ONCE = 1 << 18  # bounds the memory to some MiB however many candidates come


def iou_matrix(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Return the intersection over union of each pair: float32 (len(a), len(b)); 0 for empty boxes."""
    a, b = _corners(a_xyxy), _corners(b_xyxy)
    side = np.minimum(a[2:, :, None], b[2:, None])
    side -= np.maximum(a[:2, :, None], b[:2, None])
    return _iou(side, _areas(a)[:, None] + _areas(b))


def kept_by_nms(
    xyxy: FloatArray, score: FloatArray, group: NDArray[np.int64], *, iou_threshold: float
) -> NDArray[np.int64]:
    """Return the indices that greedy suppression keeps, highest score first.

    A box is suppressed when a kept box of the same `group` with a higher score (of equal scores: the earlier one)
    overlaps it by more than `iou_threshold`. `xyxy`: float32 (M, 4). `score`: float32 (M,). `group`: int64 (M,), boxes
    of different groups never suppress each other.
    """
    order = np.lexsort((-score, group))
    first, second = _overlapping_pairs(xyxy.take(order, axis=0), group.take(order), iou_threshold)
    kept = order[_kept_of_pairs(len(order), first, second)]
    return kept.take(np.lexsort((kept, -score.take(kept))))


def _kept_of_pairs(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    # Greedy suppression is the fixed point of "kept = not suppressed by a kept one before me"; it is reached after as
    # many rounds as the longest chain of overlaps, mostly two or three.
    kept: NDArray[np.bool_] = np.ones(count, np.bool_)
    kept[second] = False
    while True:
        settled: NDArray[np.bool_] = np.ones(count, np.bool_)
        settled[second[kept.take(first)]] = False
        if np.count_nonzero(settled != kept) == 0:
            return kept
        kept = settled


def _overlapping_pairs(
    xyxy: FloatArray, group: NDArray[np.int64], iou_threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of one group that overlap too much, the better box first; all sorted by group, then by score.

    Only pairs of one group are ever made: of the boxes of a batch, most differ in frame or class.
    """
    after_me = np.searchsorted(group, group, side="right")
    after_me -= np.arange(1, len(group) + 1)
    found = [
        _overlapping_pairs_of(slice(*span), after_me, xyxy, iou_threshold) for span in _portions(after_me.cumsum())
    ]
    if len(found) == 1:
        return found[0]
    nothing = np.empty(0, np.int64)
    return np.concatenate([nothing, *(one for one, _ in found)]), np.concatenate([nothing, *(two for _, two in found)])


def _portions(pairs_until: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield spans of boxes of which each has few enough pairs; `pairs_until` counts those of a box and all before."""
    start = 0
    while start < len(pairs_until):
        done = pairs_until[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(pairs_until, done + _PAIRS_AT_ONCE, side="right")))
        yield start, stop
        start = stop


def _overlapping_pairs_of(
    boxes: slice, after_me: NDArray[np.int64], xyxy: FloatArray, iou_threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return those pairs whose better box is one of `boxes`, each of which has `after_me` others behind it."""
    counts, index = after_me[boxes], np.arange(boxes.start, boxes.stop)
    first = index.repeat(counts)
    # The pairs of a box count on from its own index; those of all boxes are numbered through.
    second = np.arange(len(first))
    second += (index + 1 + counts - counts.cumsum()).repeat(counts)
    overlaps = (_iou_of_pairs(xyxy, first, second) > iou_threshold).nonzero()[0]
    return first.take(overlaps), second.take(overlaps)


def _iou_of_pairs(xyxy: FloatArray, first: NDArray[np.int64], second: NDArray[np.int64]) -> FloatArray:
    """Return the intersection over union of each pair; 0 for empty boxes."""
    corners = _corners(xyxy)
    areas, a, b = _areas(corners), corners.take(first, axis=1), corners.take(second, axis=1)
    side = np.minimum(a[2:], b[2:])
    side -= np.maximum(a[:2], b[:2])
    return _iou(side, areas.take(first) + areas.take(second))


def _iou(side: FloatArray, areas: FloatArray) -> FloatArray:
    """Return the IoU of pairs: `side` (2, ...) of what they share, below 0 where that is nothing, `areas` of both."""
    np.maximum(side, 0, out=side)
    shared: FloatArray = side[0] * side[1]
    areas -= shared
    # Where the union is 0, so is what is shared.
    shared /= np.maximum(areas, _LEAST, out=areas)
    return shared


def _corners(xyxy: FloatArray) -> FloatArray:
    """Return (4, M): over boxes that lie one after the other, numpy would begin anew for each."""
    return np.ascontiguousarray(xyxy.T)


def _areas(corners: FloatArray) -> FloatArray:
    side = np.maximum(corners[2:] - corners[:2], 0)
    areas: FloatArray = side[0] * side[1]
    return areas
