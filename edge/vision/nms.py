"""Non-maximum suppression, exact and class-aware, over a whole batch at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["iou_matrix", "kept_by_nms"]

FloatArray = NDArray[np.float32]

_LEAST = np.finfo(np.float32).tiny
_PAIRS_AT_ONCE = 1 << 18  # bounds the memory to some MiB however many candidates come


def iou_matrix(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Return the intersection over union of each pair: float32 (len(a), len(b)); 0 for empty boxes."""
    a, b = a_xyxy[:, None], b_xyxy
    side = np.minimum(a[..., 2:], b[:, 2:])
    side -= np.maximum(a[..., :2], b[:, :2])
    np.maximum(side, 0, out=side)
    shared: FloatArray = side[..., 0] * side[..., 1]
    union = _areas(a_xyxy)[:, None] + _areas(b_xyxy)
    union -= shared
    # Where the union is 0, so is what is shared.
    shared /= np.maximum(union, _LEAST, out=union)
    return shared


def kept_by_nms(
    xyxy: FloatArray, score: FloatArray, group: NDArray[np.int64], *, iou_threshold: float
) -> NDArray[np.int64]:
    """Return the indices that greedy suppression keeps, highest score first.

    A box is suppressed when a kept box of the same `group` with a higher score (of equal scores: the earlier one)
    overlaps it by more than `iou_threshold`.

    Args:
        xyxy: float32 (M, 4).
        score: float32 (M,).
        group: int64 (M,), boxes of different groups never suppress each other.
    """
    order = np.lexsort((-score, group))
    first, second = _overlapping_pairs(xyxy[order], group[order], iou_threshold)
    kept = order[_kept_of_pairs(len(order), first, second)]
    return kept[np.lexsort((kept, -score[kept]))]


def _kept_of_pairs(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    # Greedy suppression is the fixed point of "kept = not suppressed by a kept one before me"; it is reached after as
    # many rounds as the longest chain of overlaps, mostly two or three.
    kept: NDArray[np.bool_] = np.ones(count, np.bool_)
    while True:
        settled: NDArray[np.bool_] = np.ones(count, np.bool_)
        settled[second[kept[first]]] = False
        if np.array_equal(settled, kept):
            return kept
        kept = settled


def _overlapping_pairs(
    xyxy: FloatArray, group: NDArray[np.int64], iou_threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of one group that overlap too much, the better box first; all sorted by group, then by score.

    Only pairs of one group are ever made: of the boxes of a batch, most differ in frame or class.
    """
    index = np.arange(len(group))
    after_me = np.searchsorted(group, group, side="right") - index - 1
    ends = np.cumsum(after_me)
    found = []
    start = 0
    while start < len(group):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + _PAIRS_AT_ONCE, side="right")))
        first = np.repeat(index[start:stop], after_me[start:stop])
        within = np.arange(len(first)) - np.repeat(ends[start:stop] - after_me[start:stop] - done, after_me[start:stop])
        second = first + 1 + within
        overlaps = _iou_of_pairs(xyxy[first], xyxy[second]) > iou_threshold
        found.append((first[overlaps], second[overlaps]))
        start = stop
    if not found:
        return index, index
    return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])


def _iou_of_pairs(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Return the intersection over union of row i of `a_xyxy` and row i of `b_xyxy`."""
    side = np.minimum(a_xyxy[:, 2:], b_xyxy[:, 2:]) - np.maximum(a_xyxy[:, :2], b_xyxy[:, :2])
    shared = np.maximum(side[:, 0], 0) * np.maximum(side[:, 1], 0)
    union = _areas(a_xyxy) + _areas(b_xyxy) - shared
    iou: FloatArray = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return iou


def _areas(xyxy: FloatArray) -> FloatArray:
    side = np.maximum(xyxy[:, 2:] - xyxy[:, :2], 0)
    areas: FloatArray = side[:, 0] * side[:, 1]
    return areas
