"""How far the outputs of one model are from those of another on the same pixels: scores and boxes, before suppression.

Smoother than mAP, and needs no labels: a box a little off counts a little. What is surely there counts most, by the
square of its score: mAP is lost where INT8 lowers high scores and shifts their boxes, not in the noise of low ones
(docs/adr/0003 has the measurement).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.types import HeadFamily
from edge.vision.heads import Candidates

__all__ = ["Parity", "best_candidates", "compare_candidates", "error_of_best"]

_SAME_OBJECT_IOU = 0.5
_WITHOUT_PARTNER = 1.0  # of the logarithm of a score: that of e times less, beyond which nothing is looked at
_WORTH_OF_BOX = 2.0  # mAP50-95 wants an IoU between 0.5 and 0.95: half of the range of 1 - IoU is all there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Sums over candidates."""

    score_error: float  # absolute differences of scores, each times the larger of the two
    box_error: float  # 1 - IoU of the two boxes, times the square of the reference's score
    weight: float  # squares of the reference's scores

    def error_for(self, weight: float) -> float:
        """Return the error of an image by the mean weight of several, so that the mean of theirs is the error of all.
        0 is equal, 1 is as bad as finding nothing.
        """
        return (self.score_error + _WORTH_OF_BOX * self.box_error) / weight


def compare_candidates(reference: Candidates, found: Candidates, family: HeadFamily) -> Parity:
    """Return how far `found` is from `reference`, both of the same frames with every class above the same threshold.

    Candidates belong together by cell and class; in end-to-end heads, whose lines have no fixed meaning, by class and
    overlap. One without a partner counts as a difference of its whole score.
    """
    pair = _by_overlap if family is HeadFamily.YOLOV10 else _by_cell
    mine, theirs = pair(reference, found)
    score, other = reference.score.astype(np.float64), found.score.astype(np.float64)
    alone = np.concatenate((np.delete(score, mine), np.delete(other, theirs)))
    one, two = score[mine], other[theirs]
    overlap = _iou(reference.xyxy[mine], found.xyxy[theirs])
    return Parity(
        score_error=float((alone**2).sum() + (np.maximum(one, two) * np.abs(one - two)).sum()),
        box_error=float((one**2 * (1 - overlap)).sum()),
        weight=float((score**2).sum()),
    )


def best_candidates(found: Candidates, count: int) -> Candidates:
    """Return the `count` candidates of one frame that have the highest scores, however low these are."""
    return found.take(np.sort(np.argsort(-found.score, kind="stable")[:count]))


def error_of_best(best: Candidates, found: Candidates, family: HeadFamily) -> float:
    """Return how far `found` is from `best`, of the same frame, each of which counts the same whatever its score.

    Every frame has best candidates, also where nothing is sure: so this has far less noise than `compare_candidates`
    where objects are rare. It does not tell how much that matters: clipping lowers high scores, of which there are few.
    `best`: some of the reference's candidates, scores above 0. `found`: with all scores above 1 / e of the lowest of
    them. Returns: The mean difference of the logarithms of scores, 1 at most each, and twice the mean of 1 - IoU; 0 of
    none.
    """
    pair = _by_overlap if family is HeadFamily.YOLOV10 else _by_cell
    mine, theirs = pair(best, found)
    ratio = np.log(best.score[mine].astype(np.float64) / found.score[theirs])
    scores = np.minimum(np.abs(ratio), _WITHOUT_PARTNER).sum()
    boxes = (1 - _iou(best.xyxy[mine], found.xyxy[theirs])).sum()
    alone = len(best.score) - len(mine)
    total = float(scores + _WORTH_OF_BOX * boxes) + alone * (_WITHOUT_PARTNER + _WORTH_OF_BOX)
    return total / len(best.score) if len(best.score) else 0.0


Index = NDArray[np.int64]


def _by_cell(one: Candidates, other: Candidates) -> tuple[Index, Index]:
    cells = 1 + max(int(c.cell.max(initial=0)) for c in (one, other))
    classes = 1 + max(int(c.class_id.max(initial=0)) for c in (one, other))
    first = (one.row * cells + one.cell) * classes + one.class_id
    second = (other.row * cells + other.cell) * classes + other.class_id
    _, mine, theirs = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return mine.astype(np.int64), theirs.astype(np.int64)


def _by_overlap(one: Candidates, other: Candidates) -> tuple[Index, Index]:
    mine, theirs = [], []
    free = np.ones(len(other.score), bool)
    for index in np.argsort(-one.score, kind="stable"):
        same = free & (other.row == one.row[index]) & (other.class_id == one.class_id[index])
        choices = np.flatnonzero(same)
        overlap = _iou(np.broadcast_to(one.xyxy[index], (len(choices), 4)), other.xyxy[choices])
        if len(choices) and overlap.max() >= _SAME_OBJECT_IOU:
            mine.append(index)
            theirs.append(choices[overlap.argmax()])
            free[theirs[-1]] = False
    return np.array(mine, np.int64), np.array(theirs, np.int64)


def _iou(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the overlap of boxes, xyxy (M, 4) each, one by one; 0 where one of them is not finite or empty."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        sides = np.clip(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0, None)
        both = sides.prod(axis=1)
        areas = (a[:, 2:] - a[:, :2]).prod(axis=1) + (b[:, 2:] - b[:, :2]).prod(axis=1)
        overlap: NDArray[np.float64] = both / (areas - both)
    return np.where(np.isfinite(overlap), overlap, 0.0)
