"""Which detection is which labelled box: COCO's greedy matching at ten IoU thresholds, for one class on one image.

Source: Lin et al., COCO detection evaluation, `cocoeval.evaluateImg` for the whole range of areas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["IOU_THRESHOLDS", "MAX_DETECTIONS", "ImageMatch", "iou_of_xyxy", "match"]

IOU_THRESHOLDS: NDArray[np.float64] = np.linspace(0.5, 0.95, 10)
MAX_DETECTIONS = 100

_ALMOST_ONE = 1 - 1e-10  # COCO's own: an IoU of 1 that rounding has shaved still matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMatch:
    """Outcome for D detections, highest score first, at T thresholds.

    Attributes:
        score: float64 (D,).
        is_matched: bool (T, D).
        is_ignored: bool (T, D), matched to a crowd: counts neither for nor against.
        truths: labelled boxes that count.
    """

    score: NDArray[np.float64]
    is_matched: NDArray[np.bool_]
    is_ignored: NDArray[np.bool_]
    truths: int


def match(
    detected: NDArray[np.float64],
    score: NDArray[np.float64],
    *,
    truth: NDArray[np.float64],
    is_crowd: NDArray[np.bool_],
) -> ImageMatch:
    """Match detections, highest score first, each to the free labelled box that it overlaps most.

    Args:
        detected: (D, 4) corners.
        score: (D,).
        truth: (G, 4) corners.
        is_crowd: (G,); a crowd takes any number of detections, and only those that no single box takes.
    """
    best = np.argsort(-score, kind="stable")[:MAX_DETECTIONS]
    order = np.argsort(is_crowd, kind="stable")
    crowd = is_crowd[order]
    iou = iou_of_xyxy(detected[best], truth[order], is_crowd=crowd)
    is_matched = np.zeros((len(IOU_THRESHOLDS), len(best)), bool)
    is_ignored = np.zeros_like(is_matched)
    is_taken = np.zeros((len(IOU_THRESHOLDS), len(order)), bool)
    wanted = np.minimum(IOU_THRESHOLDS, _ALMOST_ONE)[:, None]
    for d in np.flatnonzero((iou >= wanted[0]).any(axis=1)):
        is_free = (iou[d] >= wanted) & (~is_taken | crowd)
        single = _last_best(iou[d], is_free & ~crowd)
        chosen = np.where(single >= 0, single, _last_best(iou[d], is_free & crowd))
        hit = np.flatnonzero(chosen >= 0)
        is_matched[hit, d] = True
        is_ignored[hit, d] = crowd[chosen[hit]]
        is_taken[hit, chosen[hit]] = True
    return ImageMatch(score=score[best], is_matched=is_matched, is_ignored=is_ignored, truths=int((~is_crowd).sum()))


def iou_of_xyxy(
    detected: NDArray[np.float64], truth: NDArray[np.float64], *, is_crowd: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return (D, G) intersection over union; for a crowd over the area of the detection alone."""
    near = np.maximum(detected[:, None, :2], truth[None, :, :2])
    far = np.minimum(detected[:, None, 2:], truth[None, :, 2:])
    overlap = np.clip(far - near, 0, None).prod(axis=2)
    area = (detected[:, 2:] - detected[:, :2]).prod(axis=1)[:, None]
    union = np.where(is_crowd, area, area + (truth[:, 2:] - truth[:, :2]).prod(axis=1) - overlap)
    iou: NDArray[np.float64] = np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)
    return iou


def _last_best(iou: NDArray[np.float64], is_allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each threshold the allowed box of largest IoU, the last one among equals as COCO does; -1 for none."""
    if iou.size == 0:
        return np.full(len(is_allowed), -1, np.int64)
    allowed = np.where(is_allowed, iou, -1.0)
    last = len(iou) - 1 - allowed[:, ::-1].argmax(axis=1)
    return np.where(is_allowed.any(axis=1), last, -1)
