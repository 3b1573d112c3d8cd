"""COCO mAP: average precision over classes, at IoU 0.5 to 0.95 and at 0.5 alone.

Ten IoU thresholds, 101 recall points, at most 100 detections for each class and image, boxes of every area, crowds
ignored. Equal to pycocotools, and independent of the order of images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError
from edge.evaluate.truth import GroundTruth
from edge.types import Detections

__all__ = [
    "IOU_THRESHOLDS",
    "MAX_DETECTIONS",
    "Accumulator",
    "Accuracy",
    "ClassAccuracy",
    "ImageMatch",
    "error_of_difference",
    "iou_of_xyxy",
    "match",
]

# Which detection is which labelled box: COCO's greedy matching at ten IoU thresholds, for one class on one image.
#
# Source: Lin et al., COCO detection evaluation, `cocoeval.evaluateImg` for the whole range of areas.

IOU_THRESHOLDS: NDArray[np.float64] = np.linspace(0.5, 0.95, 10)
MAX_DETECTIONS = 100

_ALMOST_ONE = 1 - 1e-10  # COCO's own: an IoU of 1 that rounding has shaved still matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMatch:
    """Outcome for D detections, highest score first, at T thresholds."""

    score: NDArray[np.float64]  # float64 (D,)
    is_matched: NDArray[np.bool_]  # bool (T, D)
    is_ignored: NDArray[np.bool_]  # bool (T, D), matched to a crowd: counts neither for nor against
    truths: int  # labelled boxes that count


def match(
    detected: NDArray[np.float64],
    score: NDArray[np.float64],
    *,
    truth: NDArray[np.float64],
    is_crowd: NDArray[np.bool_],
) -> ImageMatch:
    """Match detections, highest score first, each to the free labelled box that it overlaps most.

    `detected`: (D, 4) corners. `score`: (D,). `truth`: (G, 4) corners. `is_crowd`: (G,); a crowd takes any number of
    detections, and only those that no single box takes.
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
    allowed = np.where(is_allowed, iou, -1.0)
    last = len(iou) - 1 - allowed[:, ::-1].argmax(axis=1)
    return np.where(is_allowed.any(axis=1), last, -1)


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
        """Raise `ValueError` if the image was added before."""
        if image_id in self._images:
            raise ValueError(f"image {image_id!r} was added before; each counts once")
        self._images.add(image_id)
        xyxy, score = detections.xyxy.astype(np.float64), detections.score.astype(np.float64)
        for class_id in np.union1d(detections.class_id, truth.class_id).tolist():
            mine, theirs = detections.class_id == class_id, truth.class_id == class_id
            self._matches.setdefault(class_id, {})[image_id] = match(
                xyxy[mine], score[mine], truth=truth.xyxy[theirs], is_crowd=truth.is_crowd[theirs]
            )

    @property
    def images(self) -> tuple[str, ...]:
        """The images so far, sorted."""
        return tuple(sorted(self._images))

    @property
    def labelled_images(self) -> int:
        """How many of them have labelled boxes that count."""
        return len({image for of_class in self._matches.values() for image, one in of_class.items() if one.truths})

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
        """Raise `DatasetError` if no image has a labelled box, so that there is nothing to measure."""
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


_DRAWS = 100  # the error of the error is 7 % then


def error_of_difference(one: Accumulator, other: Accumulator) -> float | None:
    """Return the standard error of the difference of mAP50-95 of two models on the same images, 0 to 1.

    Always the same one for the same images, whatever their order. None where nothing can be said: of fewer than two
    images with labelled boxes. Raises `ValueError` if the images are not the same.
    """
    images = one.images
    if images != other.images:
        raise ValueError("the two are of different images")
    if one.labelled_images < 2:
        return None
    random, differences = np.random.default_rng(0), list[float]()
    for _ in range(_DRAWS):
        drawn = [images[index] for index in random.integers(0, len(images), len(images))]
        try:
            pair = [accumulator.drawn(drawn).result().map50_95 for accumulator in (one, other)]
        except DatasetError:  # none of the images drawn has a labelled box
            continue
        differences.append(pair[0] - pair[1])
    return float(np.std(differences, ddof=1)) if len(differences) > 1 else None
