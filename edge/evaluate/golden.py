"""The golden gate: does an engine find on some fixed images what the float model found there?

A detection of the float model is sure when its score reaches `sure_score`. What one side is sure of, the other has to
find at `floor_score` or more, which is lower: a score that moves a little over the line is no fault.
`golden.json` of a release (`edge.golden/1`): which images, and what the float model found on them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.errors import DeployError, TensorMismatchError
from edge.evaluate.coco_map import iou_of_xyxy
from edge.protocols import Engine
from edge.reading import json_object
from edge.types import Detections, Letterbox
from edge.vision.heads import Detector

__all__ = [
    "ClassScore",
    "GoldenImage",
    "GoldenScore",
    "GoldenSet",
    "Limits",
    "compare_golden",
    "decode_golden",
    "detect_golden",
    "encode_golden",
    "floor_of",
]

_FLOOR_SHARE = 0.5


class Limits(Protocol):
    """How far an engine may be from the float model; `edge.bundle.manifest.GoldenLimits` explains the numbers."""

    @property
    def min_recall(self) -> float:
        """Share of the sure detections that have to be found again."""

    @property
    def max_extra(self) -> float:
        """Sure detections that the float model does not have, per one that it has."""

    @property
    def min_iou(self) -> float:
        """For two boxes to count as one."""

    @property
    def max_score_error(self) -> float:
        """Mean absolute difference of the scores of those found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """Of one class: sure detections of the float model, those found again, and those of the engine alone."""

    expected: int
    found: int
    extra: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenScore:
    """Result of the comparison."""

    images: int  # how many were looked at
    expected: int  # sure detections of the float model
    found: int  # those that were found again
    extra: int  # sure detections of the engine that the float model does not have
    mean_iou: float  # of those found again; 0 if there are none
    score_error: float  # mean absolute difference of the scores of those found again; 0 if there are none
    per_class: Mapping[int, ClassScore] = field(default_factory=dict)  # by class id, of classes that occur
    failures: tuple[str, ...] = ()  # each limit that is broken, as a sentence with numbers; empty: passed

    @property
    def is_passed(self) -> bool:
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
        """Name classes by `labels`, as far as these go; those of one name are one."""
        per_class: dict[str, list[int]] = {}
        for number, one in sorted(self.per_class.items()):
            sums = per_class.setdefault(labels[number] if number < len(labels) else str(number), [0, 0, 0])
            sums[:] = map(sum, zip(sums, (one.expected, one.found, one.extra), strict=True))
        return {
            "passed": self.is_passed,
            "images": self.images,
            "expected": self.expected,
            "found": self.found,
            "extra": self.extra,
            "recall": round(self.recall, 4),
            "mean_iou": round(self.mean_iou, 4),
            "score_error": round(self.score_error, 4),
            "per_class": per_class,
            "failures": list(self.failures),
        }


def floor_of(sure_score: float) -> float:
    """Return the score from which on a detection confirms one that the other side is sure of."""
    return sure_score * _FLOOR_SHARE


def compare_golden(
    expected: Sequence[Detections], found: Sequence[Detections], *, sure_score: float, limits: Limits
) -> GoldenScore:
    """Return how well `found` repeats `expected`, image by image.

    `expected`: of the float model, down to `floor_of(sure_score)`. `found`: of the engine, of the same images in the
    same order, down to the same score. `sure_score`: from which on a detection has to be confirmed by the other side.
    `limits`: what has to hold. Raises `ValueError` if the two are not of the same number of images.
    """
    tally = _Tally()
    for one, other in zip(expected, found, strict=True):
        tally.add(one, other, sure_score=sure_score, min_iou=limits.min_iou)
    per_class = tally.per_class()
    score = GoldenScore(
        images=len(expected),
        expected=sum(one.expected for one in per_class.values()),
        found=sum(one.found for one in per_class.values()),
        extra=sum(one.extra for one in per_class.values()),
        mean_iou=_mean(tally.ious),
        score_error=_mean(tally.score_errors),
        per_class=per_class,
    )
    return replace(score, failures=tuple(_failures(score, limits)))


class _Tally:
    def __init__(self) -> None:
        self.counts: Counter[tuple[int, str]] = Counter()  # by class and field of `ClassScore`
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
        self.counts.update((class_id, "extra") for class_id in found.class_id[is_sure & ~is_confirmed].tolist())

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
            class_id = int(expected.class_id[index])
            self.counts[class_id, "expected"] += 1
            if is_found:
                self.counts[class_id, "found"] += 1
                self.ious.append(float(choices[best]))
                self.score_errors.append(abs(float(expected.score[index]) - float(found.score[best])))

    def per_class(self) -> dict[int, ClassScore]:
        return {
            class_id: ClassScore(**{what: self.counts[class_id, what] for what in ("expected", "found", "extra")})
            for class_id in sorted({class_id for class_id, _ in self.counts})
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _overlaps(expected: Detections, found: Detections) -> NDArray[np.float64]:
    """Return (E, F) intersection over union; 0 between classes, and for boxes that are not finite."""
    nothing = np.zeros(len(found), bool)
    with np.errstate(invalid="ignore"):
        overlap = iou_of_xyxy(expected.xyxy.astype(np.float64), found.xyxy.astype(np.float64), is_crowd=nothing)
    is_same = expected.class_id[:, None] == found.class_id[None, :]
    return np.where(is_same & np.isfinite(overlap), overlap, 0.0)


def _failures(score: GoldenScore, limits: Limits) -> Iterator[str]:
    if not score.expected:
        yield "the float model is sure of nothing on these images, so they prove nothing"
        return
    if score.found < limits.min_recall * score.expected:
        yield (
            f"{score.found} of {score.expected} sure detections were found again "
            f"({score.recall:.3f}, at least {limits.min_recall:g} expected)"
        )
    if score.extra > limits.max_extra * score.expected:
        yield (
            f"{score.extra} sure detections that the float model does not have "
            f"({score.extra_share:.3f} per one that it has, at most {limits.max_extra:g} expected)"
        )
    if score.score_error > limits.max_score_error:
        yield (f"scores differ by {score.score_error:.3f} on average, at most {limits.max_score_error:g} expected")


def detect_golden(canvases: Sequence[NDArray[np.uint8]], engine: Engine, detector: Detector) -> list[Detections]:
    """Return the detections on each canvas, in pixels of the canvas.

    Every batch is full: the first canvases fill up the last one, because a short batch may run another kernel.
    `canvases`: uint8 (H, W, 3) RGB each, letterboxed already. `engine`: nothing else uses it meanwhile.
    Raises `TensorMismatchError` if a canvas is not of the engine's size; EngineError if an inference failed.
    """
    size = engine.preprocess.size
    for canvas in canvases:
        if canvas.shape != (size.height, size.width, 3):
            raise TensorMismatchError(f"a golden frame is {canvas.shape}, the engine takes {size}")
    whole = Letterbox(source=size, fitted=size, canvas=size, pad_left=0, pad_top=0)
    found: list[Detections] = []
    for first in range(0, len(canvases), engine.max_batch):
        for row in range(engine.max_batch):
            engine.canvases[0][row] = canvases[(first + row) % len(canvases)]
        engine.start(0, engine.max_batch)
        found += detector.detect(engine.wait(0), [whole] * engine.max_batch)
    return found[: len(canvases)]


_FORMAT = "edge.golden/1"
_DIGITS = 4  # of scores and pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenImage:
    """A picture of the model's input size, letterboxed already, and what the float model found on it."""

    path: str
    detections: Detections


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSet:
    """Detections that an engine has to find again."""

    model_sha256: str  # this and the next: of the float model
    preprocess_sha256: str
    engine: str  # kind and version of what ran it
    labels: tuple[str, ...]  # by class id
    sure_score: float  # from which on a detection counts, see `edge.evaluate.golden`
    iou_threshold: float  # this and `max_detections`: of the suppression, as the pipeline has them
    max_detections: int
    images: tuple[GoldenImage, ...]  # at least one; paths are those of the release

    def __post_init__(self) -> None:
        if not 0 < self.sure_score <= 1 or not 0 <= self.iou_threshold <= 1 or not self.images:
            raise ValueError(f"sure score {self.sure_score}, IoU {self.iou_threshold}, {len(self.images)} images")


def encode_golden(golden: GoldenSet) -> bytes:
    """Return the file's one spelling: one line per detection, so that a difference can be read."""
    head = {
        "format": _FORMAT,
        "model_sha256": golden.model_sha256,
        "preprocess_sha256": golden.preprocess_sha256,
        "engine": golden.engine,
        "labels": list(golden.labels),
        "sure_score": golden.sure_score,
        "iou_threshold": golden.iou_threshold,
        "max_detections": golden.max_detections,
        "detection": ["class_id", "score", "left", "top", "right", "bottom"],
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    images = ",\n".join(_image_text(image) for image in golden.images)
    return ("{\n" + "\n".join(lines) + '\n  "images": [\n' + images + "\n  ]\n}\n").encode()


def decode_golden(content: bytes) -> GoldenSet:
    """Return what `encode_golden` was given, numbers rounded.
    Raises `DeployError` `verify.golden`, if it is something else.
    """
    try:
        values = json_object(content)
        if values["format"] != _FORMAT:
            raise ValueError(f"format {values['format']!r}, expected {_FORMAT!r}")
        return GoldenSet(
            model_sha256=str(values["model_sha256"]),
            preprocess_sha256=str(values["preprocess_sha256"]),
            engine=str(values["engine"]),
            labels=tuple(map(str, values["labels"])),
            sure_score=float(values["sure_score"]),
            iou_threshold=float(values["iou_threshold"]),
            max_detections=int(values["max_detections"]),
            images=tuple(
                GoldenImage(path=str(one["path"]), detections=_detections(one["detections"]))
                for one in values["images"]
            ),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DeployError(
            "verify.golden", f"golden.json cannot be read: {error}", hint="bundle the release again"
        ) from None


def _image_text(image: GoldenImage) -> str:
    found = image.detections
    rows = [
        json.dumps([int(class_id), *(round(float(value), _DIGITS) for value in (score, *box))])
        for class_id, score, box in zip(found.class_id, found.score, found.xyxy, strict=True)
    ]
    body = "".join(f"\n      {row}," for row in rows).rstrip(",")
    return f'    {{"path": {json.dumps(image.path)}, "detections": [{body}]}}'


def _detections(rows: list[list[float]]) -> Detections:
    table = np.array(rows, np.float64).reshape(-1, 6)
    if not np.isfinite(table).all():
        raise ValueError("a detection is not finite")
    return Detections(
        xyxy=table[:, 2:].astype(np.float32),
        score=table[:, 1].astype(np.float32),
        class_id=table[:, 0].astype(np.int32),
    )
