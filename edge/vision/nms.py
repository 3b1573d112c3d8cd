"""Non-maximum suppression, exact and class-aware, over a whole batch at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["iou_matrix", "kept_by_nms"]

FloatArray = NDArray[np.float32]

_BLOCK = 512  # candidates compared with each other at once: bounds the memory to some MiB however many come


def iou_matrix(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Return the intersection over union of each pair: float32 (len(a), len(b)); 0 for empty boxes."""
    low = np.maximum(a_xyxy[:, None, :2], b_xyxy[None, :, :2])
    high = np.minimum(a_xyxy[:, None, 2:], b_xyxy[None, :, 2:])
    side = np.maximum(high - low, 0)
    shared = side[..., 0] * side[..., 1]
    union = _areas(a_xyxy)[:, None] + _areas(b_xyxy)[None, :] - shared
    iou: FloatArray = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return iou


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
    order = np.argsort(-score, kind="stable")
    kept = order[:0]
    for first in range(0, len(order), _BLOCK):
        block = order[first : first + _BLOCK]
        if len(kept):
            block = block[~_suppression(xyxy, group, kept, block, iou_threshold).any(axis=0)]
        kept = np.concatenate([kept, block[_kept_in_block(xyxy, group, block, iou_threshold)]])
    return kept


def _kept_in_block(
    xyxy: FloatArray, group: NDArray[np.int64], block: NDArray[np.int64], iou_threshold: float
) -> NDArray[np.bool_]:
    # Greedy suppression is the fixed point of "kept = not suppressed by a kept one before me"; it is reached after as
    # many rounds as the longest chain of overlaps, mostly two or three, each one matrix product without a Python loop.
    suppresses = np.triu(_suppression(xyxy, group, block, block, iou_threshold), k=1)
    kept: NDArray[np.bool_] = np.ones(len(block), np.bool_)
    while True:
        settled: NDArray[np.bool_] = np.logical_not((suppresses & kept[:, None]).any(axis=0))
        if np.array_equal(settled, kept):
            return kept
        kept = settled


def _suppression(
    xyxy: FloatArray, group: NDArray[np.int64], by: NDArray[np.int64], of: NDArray[np.int64], iou_threshold: float
) -> NDArray[np.bool_]:
    same_group = group[by][:, None] == group[of][None, :]
    overlaps: NDArray[np.bool_] = same_group & (iou_matrix(xyxy[by], xyxy[of]) > iou_threshold)
    return overlaps


def _areas(xyxy: FloatArray) -> FloatArray:
    width = np.maximum(xyxy[:, 2] - xyxy[:, 0], 0)
    height = np.maximum(xyxy[:, 3] - xyxy[:, 1], 0)
    areas: FloatArray = width * height
    return areas
