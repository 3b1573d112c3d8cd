"""COCO mAP: average precision over classes, at IoU 0.5 to 0.95 and at 0.5 alone.

Ten IoU thresholds, 101 recall points, at most 100 detections for each class and image, boxes of every area, crowds
ignored. Equal to pycocotools (see `edge.evaluate.cocotools`), and independent of the order of images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError
from edge.evaluate.matching import IOU_THRESHOLDS, ImageMatch, match
from edge.evaluate.truth import GroundTruth
from edge.types import Detections

__all__ = ["Accumulator", "Accuracy", "ClassAccuracy"]

RECALL_POINTS: NDArray[np.float64] = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAccuracy:
    """Average precision of one class that has labelled boxes; `boxes` is their number."""

    class_id: int
    map50_95: float
    map50: float
    boxes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """mAP of a whole set of images, 0 to 1; `boxes` are labelled ones that count, `per_class` has classes with some."""

    map50_95: float
    map50: float
    per_class: tuple[ClassAccuracy, ...]
    images: int
    boxes: int


class Accumulator:
    """Takes images one by one, in any order; keeps scores and matches, no boxes."""

    def __init__(self) -> None:
        self._images: set[str] = set()
        self._matches: dict[int, dict[str, ImageMatch]] = {}

    def add(self, image_id: str, detections: Detections, truth: GroundTruth) -> None:
        """Compare what was detected on an image with what is there.

        Raises:
            ValueError: if the image was added before.
        """
        if image_id in self._images:
            raise ValueError(f"image {image_id!r} was added before; each counts once")
        self._images.add(image_id)
        xyxy, score = detections.xyxy.astype(np.float64), detections.score.astype(np.float64)
        for class_id in np.union1d(detections.class_id, truth.class_id).tolist():
            mine, theirs = detections.class_id == class_id, truth.class_id == class_id
            self._matches.setdefault(class_id, {})[image_id] = match(
                xyxy[mine], score[mine], truth=truth.xyxy[theirs], is_crowd=truth.is_crowd[theirs]
            )

    def merge(self, other: Accumulator) -> None:
        """Take over the images of `other`, which are not among ours.

        Raises:
            ValueError: if an image is in both.
        """
        if shared := self._images & other._images:
            raise ValueError(f"image {min(shared)!r} is in both; each counts once")
        self._images |= other._images
        for class_id, matches in other._matches.items():
            self._matches.setdefault(class_id, {}).update(matches)

    @property
    def images(self) -> tuple[str, ...]:
        """The images so far, sorted."""
        return tuple(sorted(self._images))

    def drawn(self, images: Sequence[str]) -> Accumulator:
        """Return one of `images` of ours only; one that is named twice counts twice."""
        drawn, names = Accumulator(), [f"{image}/{number}" for number, image in enumerate(images)]
        drawn._images = set(names)
        for class_id, matches in self._matches.items():
            pairs = zip(names, images, strict=True)
            if of_class := {name: matches[image] for name, image in pairs if image in matches}:
                drawn._matches[class_id] = of_class
        return drawn

    def result(self) -> Accuracy:
        """Return the mAP of the images so far.

        Raises:
            DatasetError: if no image has a labelled box, so that there is nothing to measure.
        """
        per_class = [c for class_id in sorted(self._matches) if (c := self._of_class(class_id)) is not None]
        if not per_class:
            raise DatasetError(
                f"{len(self._images)} images have no labelled box, mAP needs at least one",
                hint="check that labels and images have the same names",
            )
        return Accuracy(
            map50_95=float(np.mean([c.map50_95 for c in per_class])),
            map50=float(np.mean([c.map50 for c in per_class])),
            per_class=tuple(per_class),
            images=len(self._images),
            boxes=sum(c.boxes for c in per_class),
        )

    def _of_class(self, class_id: int) -> ClassAccuracy | None:
        precision, boxes = _precision(self._matches[class_id])
        if boxes == 0:
            return None
        return ClassAccuracy(
            class_id=class_id, map50_95=float(precision.mean()), map50=float(precision[0].mean()), boxes=boxes
        )


def _precision(matches: Mapping[str, ImageMatch]) -> tuple[NDArray[np.float64], int]:
    """Return precision (T, 101) at each recall point, and the number of labelled boxes.

    Equal scores keep the order of their image ids, so that the order in which images came does not matter.
    """
    ordered = [matches[image_id] for image_id in sorted(matches)]
    boxes = sum(one.truths for one in ordered)
    if boxes == 0:
        return np.zeros((len(IOU_THRESHOLDS), len(RECALL_POINTS))), 0
    order = np.argsort(-np.concatenate([one.score for one in ordered]), kind="stable")
    is_matched = np.concatenate([one.is_matched for one in ordered], axis=1)[:, order]
    counts = ~np.concatenate([one.is_ignored for one in ordered], axis=1)[:, order]
    right = np.cumsum(is_matched & counts, axis=1, dtype=np.float64)
    wrong = np.cumsum(~is_matched & counts, axis=1, dtype=np.float64)
    precision = right / (right + wrong + np.spacing(1))
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return np.stack([_at_recall_points(r / boxes, p) for r, p in zip(right, envelope, strict=True)]), boxes


def _at_recall_points(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the precision (101,) at the first detection that reaches each recall; 0 where none does."""
    position = np.searchsorted(recall, RECALL_POINTS, side="left")
    padded = np.append(precision, 0.0)
    at_points: NDArray[np.float64] = padded[position]
    return at_points
