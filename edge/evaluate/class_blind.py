"""Whether labels mean the classes that a model means: which class is detected where each class is labelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from edge.errors import DatasetError
from edge.evaluate.class_names import listed
from edge.evaluate.coco_map import iou_of_xyxy
from edge.evaluate.truth import GroundTruth
from edge.types import Detections

__all__ = ["ClassBlind"]

_SURE_SCORE = 0.25
_SAME_IOU = 0.5
_FEWEST = 3  # boxes of a class that tell what it is taken for
_MOST = 0.75  # of them
_FEWEST_OF_CIRCLE = 4
_ENOUGH_WRONG = 8
_SHARE = 0.5  # of all boxes that meet a detection: more are no confusion of a model
_FEW_MEET = 0.1
_ENOUGH = 20


class ClassBlind:
    """Counts, image by image, labelled boxes that meet a sure detection, whatever its class."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._boxes = 0
        self._met: Counter[tuple[int, int]] = Counter()

    def add(self, detections: Detections, truth: GroundTruth) -> None:
        single, sure = ~truth.is_crowd, detections.score >= _SURE_SCORE
        self._boxes += int(single.sum())
        boxes, class_id = truth.xyxy[single], truth.class_id[single]
        found = detections.xyxy[sure].astype(np.float64)
        if not len(found) or not len(boxes):
            return
        iou = iou_of_xyxy(found, boxes, is_crowd=np.zeros(len(boxes), np.bool_))
        own = detections.class_id[sure][:, None] == class_id[None]
        # Where two classes are detected at one place, the one that the label says counts: a doubt is no contradiction.
        best = np.where(iou >= _SAME_IOU, iou + own, 0.0).argmax(axis=0)
        for box in np.flatnonzero((iou >= _SAME_IOU).any(axis=0)).tolist():
            self._met[int(class_id[box]), int(detections.class_id[sure][best[box]])] += 1

    def require_same_classes(self, where: str) -> None:
        """Refuse labels whose classes are permuted: most boxes are detected as another class, or two change places.
        Raises `DatasetError` if so, with the permutation as it looks.
        """
        taken, places = self._taken_for(), self._changed_places()
        wrong = sum(count for _, count, _ in taken.values())
        if places or (wrong >= _ENOUGH_WRONG and wrong > _SHARE * sum(self._met.values())):
            looks = [
                f"{self._labels[one]} is detected as {self._labels[other]} ({count} of {total} boxes)"
                for one, (other, count, total) in {**places, **taken}.items()
            ]
            raise DatasetError(
                f"{where}: classes are permuted: {listed(looks)}",
                hint="put the names of the labels' classes beside them (classes.txt, data.yaml), or mend the model's",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Suspicions that are not sure enough for an error."""
        met = sum(self._met.values())
        if self._boxes >= _ENOUGH and met < _FEW_MEET * self._boxes:
            return (
                f"{met} of {self._boxes} labelled boxes lie where the model detects something: are they of these "
                "images, and is their format the right one?",
            )
        return tuple(
            f"{count} of {total} boxes of {self._labels[one]} are detected as {self._labels[other]}"
            for one, (other, count, total) in self._taken_for().items()
        )

    def _taken_for(self, *, fewest: int = _FEWEST) -> dict[int, tuple[int, int, int]]:
        """Return of labelled classes that are detected as another one: that one, of how many boxes, of how many."""
        of_class: dict[int, Counter[int]] = {}
        for (one, other), count in self._met.items():
            of_class.setdefault(one, Counter())[other] += count
        most = {one: (*counts.most_common(1)[0], counts.total()) for one, counts in sorted(of_class.items())}
        return {
            one: (other, count, total)
            for one, (other, count, total) in most.items()
            if other != one and count >= fewest and count >= _MOST * total
        }

    def _changed_places(self) -> dict[int, tuple[int, int, int]]:
        """Return a circle of classes, each detected as the next one: no model errs like that, so few boxes tell."""
        taken = self._taken_for(fewest=1)
        for start in taken:
            circle, at = [start], taken[start][0]
            while at in taken and at not in circle:
                circle.append(at)
                at = taken[at][0]
            if at == start and sum(taken[one][1] for one in circle) >= _FEWEST_OF_CIRCLE:
                return {one: taken[one] for one in circle}
        return {}
