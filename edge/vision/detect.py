"""From what an engine gives of a batch to the detections of each frame: decode, suppress, undo the letterbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.types import Detections, EngineOutput, HeadFamily, Letterbox
from edge.vision.heads import Candidates, Head, decode
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

        Args:
            output: of the engine, of B frames.
            letterboxes: of the B frames.
            class_ids: of the B frames, the classes that are wanted, None for all; None: all classes of all frames. What
                is not wanted does not count towards `max_detections`.
        """
        candidates = decode(output, self.head, score_threshold=self.score_threshold)
        found = self._suppress(candidates if class_ids is None else _of_classes(candidates, class_ids))
        return [self._of_frame(found, row, letterbox) for row, letterbox in enumerate(letterboxes)]

    def _suppress(self, found: Candidates) -> Candidates:
        if self.head.family is HeadFamily.YOLOV10:  # trained to give one box per object: suppression would only harm
            return found.take(np.argsort(-found.score, kind="stable"))
        group = found.row * _MAX_CLASSES + found.class_id
        return found.take(kept_by_nms(found.xyxy, found.score, group, iou_threshold=self.iou_threshold))

    def _of_frame(self, found: Candidates, row: int, letterbox: Letterbox) -> Detections:
        mine = found.take(np.flatnonzero(found.row == row)[: self.max_detections])
        xyxy = source_from_canvas_xyxy(mine.xyxy, letterbox)
        return Detections(xyxy=xyxy, score=mine.score, class_id=mine.class_id)


def _of_classes(found: Candidates, class_ids: Sequence[NDArray[np.int32] | None]) -> Candidates:
    if all(wanted is None for wanted in class_ids):
        return found
    kept: NDArray[np.bool_] = np.ones(len(found.row), np.bool_)
    for row, wanted in enumerate(class_ids):
        if wanted is not None:
            kept &= (found.row != row) | np.isin(found.class_id, wanted)
    return found.take(np.flatnonzero(kept))
