"""From what an engine gives of a batch to the detections of each frame: decode, suppress, undo the letterbox."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.types import Detections, EngineOutput, HeadFamily, Letterbox
from edge.vision.heads import Candidates, Head, decode_output
from edge.vision.letterbox import source_from_canvas_xyxy
from edge.vision.nms import kept_by_nms

__all__ = ["Detector"]

_MAX_CLASSES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Reads detections out of a head's output; pure, so that evaluation and service share it."""

    head: Head
    score_threshold: float
    iou_threshold: float
    max_detections: int

    def detect(
        self,
        output: EngineOutput,
        letterboxes: Sequence[Letterbox],
        *,
        class_ids: Sequence[NDArray[np.int32] | None] | None = None,
    ) -> list[Detections]:
        """Return the detections of each frame, in pixels of its source, highest score first.

        `output`: of the engine, of B frames. `letterboxes`: of the B frames. `class_ids`: of the B frames, the classes
        that are wanted, None for all; None: all classes of all frames. What is not wanted does not count towards
        `max_detections`.
        """
        candidates = decode_output(output, self.head, score_threshold=self.score_threshold)
        found = candidates if class_ids is None else _of_classes(candidates, class_ids)
        kept = self._kept(found)
        kept = kept.take(found.row.take(kept).argsort(kind="stable"))
        row, score, class_id = found.row.take(kept), found.score.take(kept), found.class_id.take(kept)
        xyxy = source_from_canvas_xyxy(found.xyxy.take(kept, axis=0), letterboxes, row)
        ends = np.searchsorted(row, np.arange(len(letterboxes) + 1)).tolist()
        spans = [slice(first, min(end, first + self.max_detections)) for first, end in itertools.pairwise(ends)]
        # Copies: a result is kept for longer than the batch.
        return [
            Detections(xyxy=xyxy[one].copy(), score=score[one].copy(), class_id=class_id[one].copy()) for one in spans
        ]

    def _kept(self, found: Candidates) -> NDArray[np.int64]:
        """Return the indices of what is not suppressed, highest score first."""
        if self.head.family is HeadFamily.YOLOV10:  # trained to give one box per object: suppression would only harm
            return np.argsort(-found.score, kind="stable")
        group = found.row * _MAX_CLASSES + found.class_id
        return kept_by_nms(found.xyxy, found.score, group, iou_threshold=self.iou_threshold)


def _of_classes(found: Candidates, class_ids: Sequence[NDArray[np.int32] | None]) -> Candidates:
    if all(wanted is None for wanted in class_ids):
        return found
    kept: NDArray[np.bool_] = np.ones(len(found.row), np.bool_)
    for row, wanted in enumerate(class_ids):
        if wanted is not None:
            kept &= (found.row != row) | np.isin(found.class_id, wanted)
    return found.take(np.flatnonzero(kept))
