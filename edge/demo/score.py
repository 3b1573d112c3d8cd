"""Detections against exact ground truth: precision and recall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.demo.street.scene import Truth
from edge.vision.nms import iou_matrix

__all__ = ["Score", "count_hits"]

SAME_OBJECT_IOU = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many objects were found; scores of frames add up."""

    hits: int = 0
    detected: int = 0
    labelled: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(
            hits=self.hits + other.hits,
            detected=self.detected + other.detected,
            labelled=self.labelled + other.labelled,
        )

    @property
    def precision(self) -> float:
        """Share of the detections that are objects; 0 when nothing was detected."""
        return self.hits / self.detected if self.detected else 0.0

    @property
    def recall(self) -> float:
        """Share of the objects that were detected; 0 when there was none."""
        return self.hits / self.labelled if self.labelled else 0.0


def count_hits(xyxy: NDArray[np.float32], class_id: NDArray[np.int32], truth: Truth) -> Score:
    """Return the score of one frame: a detection hits the object of its class that it overlaps most, each only once.

    Args:
        xyxy: float32 (N, 4), highest score first.
        class_id: int32 (N,).
        truth: what is in the frame.
    """
    iou = iou_matrix(xyxy, truth.xyxy)
    iou[class_id[:, None] != truth.class_id[None, :]] = 0
    hits = 0
    for row in range(len(iou)):
        best = int(iou[row].argmax()) if iou.shape[1] else -1
        if best >= 0 and iou[row, best] >= SAME_OBJECT_IOU:
            hits += 1
            iou[:, best] = 0
    return Score(hits=hits, detected=len(xyxy), labelled=len(truth.xyxy))
