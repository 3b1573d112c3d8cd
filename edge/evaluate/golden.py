"""The golden gate: does an engine find on some fixed images what the float model found there?

A detection of the float model is sure when its score reaches `sure_score`. What one side is sure of, the other has to
find at `floor_score` or more, which is lower: a score that moves a little over the line is no fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.evaluate.matching import iou_of_xyxy
from edge.types import Detections

__all__ = ["ClassScore", "GoldenScore", "Limits", "compare_golden", "floor_of"]

_FLOOR_SHARE = 0.5


class Limits(Protocol):
    """How far an engine may be from the float model; `edge.bundle.manifest.GoldenLimits` explains the numbers."""

    @property
    def min_recall(self) -> float:
        """Share of the sure detections that have to be found again."""
        ...

    @property
    def max_extra(self) -> float:
        """Sure detections that the float model does not have, per one that it has."""
        ...

    @property
    def min_iou(self) -> float:
        """For two boxes to count as one."""
        ...

    @property
    def max_score_error(self) -> float:
        """Mean absolute difference of the scores of those found again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """Of one class: sure detections of the float model, those found again, and those of the engine alone."""

    expected: int
    found: int
    extra: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenScore:
    """What came of the comparison.

    Attributes:
        images: how many were looked at.
        expected: sure detections of the float model.
        found: those that were found again.
        extra: sure detections of the engine that the float model does not have.
        mean_iou: of those found again; 0 if there are none.
        score_error: mean absolute difference of the scores of those found again; 0 if there are none.
        per_class: by class id, of classes that occur.
        failures: each limit that is broken, as a sentence with numbers; empty: passed.
    """

    images: int
    expected: int
    found: int
    extra: int
    mean_iou: float
    score_error: float
    per_class: Mapping[int, ClassScore] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Whether every limit holds."""
        return not self.failures

    @property
    def recall(self) -> float:
        """Share of the sure detections that were found again."""
        return self.found / self.expected if self.expected else 0.0

    @property
    def extra_share(self) -> float:
        """Detections of the engine alone, per sure detection of the float model."""
        return self.extra / self.expected if self.expected else float(self.extra)

    def as_json(self, labels: Sequence[str] = ()) -> dict[str, Any]:
        """Return plain JSON values; classes are named by `labels` as far as these go."""
        return {
            "passed": self.is_passed,
            "images": self.images,
            "expected": self.expected,
            "found": self.found,
            "extra": self.extra,
            "recall": round(self.recall, 4),
            "mean_iou": round(self.mean_iou, 4),
            "score_error": round(self.score_error, 4),
            "per_class": {
                labels[number] if number < len(labels) else str(number): [one.expected, one.found, one.extra]
                for number, one in sorted(self.per_class.items())
            },
            "failures": list(self.failures),
        }


def floor_of(sure_score: float) -> float:
    """Return the score from which on a detection confirms one that the other side is sure of."""
    return sure_score * _FLOOR_SHARE


def compare_golden(
    expected: Sequence[Detections], found: Sequence[Detections], *, sure_score: float, limits: Limits
) -> GoldenScore:
    """Return how well `found` repeats `expected`, image by image.

    Args:
        expected: of the float model, down to `floor_of(sure_score)`.
        found: of the engine, of the same images in the same order, down to the same score.
        sure_score: from which on a detection has to be confirmed by the other side.
        limits: what has to hold.

    Raises:
        ValueError: if the two are not of the same number of images.
    """
    tally = _Tally()
    for one, other in zip(expected, found, strict=True):
        tally.add(one, other, sure_score=sure_score, min_iou=limits.min_iou)
    score = tally.score()
    return GoldenScore(
        images=len(expected),
        expected=score.expected,
        found=score.found,
        extra=score.extra,
        mean_iou=tally.mean(tally.ious),
        score_error=tally.mean(tally.score_errors),
        per_class={number: tally.of(number) for number in tally.classes()},
        failures=tuple(_failures(score, tally.mean(tally.score_errors), limits)),
    )


class _Tally:
    """Counts by class, and the pairs that were found."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], int] = {}
        self.ious: list[float] = []
        self.score_errors: list[float] = []

    def add(self, expected: Detections, found: Detections, *, sure_score: float, min_iou: float) -> None:
        floor = floor_of(sure_score)
        overlap = _overlaps(expected, found)
        overlap[expected.score < floor, :] = 0
        overlap[:, ~(found.score >= floor)] = 0  # NaN is not found
        self._recall(expected, found, overlap, sure_score=sure_score, min_iou=min_iou)
        is_sure = found.score >= sure_score
        is_confirmed = (overlap >= min_iou).any(axis=0) if len(expected) else np.zeros(len(found), bool)
        for class_id in found.class_id[is_sure & ~is_confirmed]:
            self._count(class_id, "extra")

    def _recall(
        self,
        expected: Detections,
        found: Detections,
        overlap: NDArray[np.float64],
        *,
        sure_score: float,
        min_iou: float,
    ) -> None:
        """The surest first, each takes the free box that overlaps most: one box confirms one object."""
        is_free = np.ones(len(found), bool)
        for index in np.argsort(-expected.score, kind="stable"):
            choices = np.where(is_free, overlap[index], 0.0)
            best = int(choices.argmax()) if len(choices) else -1
            is_found = best >= 0 and choices[best] >= max(min_iou, 1e-9)
            if is_found:
                is_free[best] = False
            if expected.score[index] < sure_score:
                continue
            self._count(expected.class_id[index], "expected")
            if is_found:
                self._count(expected.class_id[index], "found")
                self.ious.append(float(choices[best]))
                self.score_errors.append(abs(float(expected.score[index]) - float(found.score[best])))

    def _count(self, class_id: np.int32, what: str) -> None:
        key = (int(class_id), what)
        self.counts[key] = self.counts.get(key, 0) + 1

    def classes(self) -> list[int]:
        return sorted({class_id for class_id, _ in self.counts})

    def of(self, class_id: int) -> ClassScore:
        return ClassScore(**{what: self.counts.get((class_id, what), 0) for what in ("expected", "found", "extra")})

    def score(self) -> ClassScore:
        parts = [self.of(class_id) for class_id in self.classes()]
        return ClassScore(
            expected=sum(one.expected for one in parts),
            found=sum(one.found for one in parts),
            extra=sum(one.extra for one in parts),
        )

    @staticmethod
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0


def _overlaps(expected: Detections, found: Detections) -> NDArray[np.float64]:
    """Return (E, F) intersection over union; 0 between classes, and for boxes that are not finite."""
    nothing = np.zeros(len(found), bool)
    with np.errstate(invalid="ignore"):
        overlap = iou_of_xyxy(expected.xyxy.astype(np.float64), found.xyxy.astype(np.float64), is_crowd=nothing)
    is_same = expected.class_id[:, None] == found.class_id[None, :]
    return np.where(is_same & np.isfinite(overlap), overlap, 0.0)


def _failures(total: ClassScore, score_error: float, limits: Limits) -> list[str]:
    if not total.expected:
        return ["the float model is sure of nothing on these images, so they prove nothing"]
    failures = []
    if total.found < limits.min_recall * total.expected:
        failures.append(
            f"{total.found} of {total.expected} sure detections were found again "
            f"({total.found / total.expected:.3f}, at least {limits.min_recall:g} expected)"
        )
    if total.extra > limits.max_extra * total.expected:
        failures.append(
            f"{total.extra} sure detections that the float model does not have "
            f"({total.extra / total.expected:.3f} per one that it has, at most {limits.max_extra:g} expected)"
        )
    if score_error > limits.max_score_error:
        failures.append(f"scores differ by {score_error:.3f} on average, at most {limits.max_score_error:g} expected")
    return failures
