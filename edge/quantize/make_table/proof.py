"""Measures the accuracy of INT8 on images that no range comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edge.calibrate.table import Evidence, Objects
from edge.engine.kind import EngineKind
from edge.evaluate.class_blind import ClassBlind
from edge.evaluate.coco_map import Accumulator, error_of_difference
from edge.evaluate.truth import GroundTruth, Labels
from edge.quantize.crew import Crew
from edge.quantize.feed import Detecting
from edge.quantize.forms import Forms
from edge.quantize.make_table.subject import counted_objects
from edge.quantize.stills import StillImage
from edge.types import Detections, ImageSize, Precision

__all__ = ["Prover"]

_BATCH = 2
_REPORTED_SCORE = 0.25  # float detections above stand for what is there, where no labels say what is


class Prover:
    """Measures INT8 models against the float model of `forms`, whose mAP50-95 is `float_`, 0 to 1.

    `images`: none of those that ranges come from. `labels`: what is on them; None: what the float model finds counts as
    the truth. `on_image`: called after each inference.
    Raises `DatasetError` if labels are malformed, or their classes are permuted.
    """

    def __init__(
        self,
        kind: EngineKind,
        forms: Forms,
        images: Sequence[StillImage],
        labels: Labels | None,
        *,
        on_image: Callable[[], None],
        crew: Crew,
    ) -> None:
        self._crew = crew
        self._kind = kind
        self._images = images
        self._on_image = on_image
        self._seen: dict[Forms, list[tuple[str, Detections]]] = {}
        self._truths: dict[str, GroundTruth] = {}
        self._reported: dict[str, GroundTruth] = {}
        self._labels, self._names = labels, forms.spec.labels
        found, class_blind = Accumulator(), ClassBlind(forms.spec.labels)
        for image, size, detections in self._detect(forms, Precision.FP32):
            reported = self._reported[image.sha256] = _reported(detections)
            truth = self._truths[image.sha256] = reported if labels is None else labels.truth(image.path.stem, size)
            found.add(image.sha256, detections, truth)
            class_blind.add(detections, truth)
        self._found = None if labels is None else found
        self.float_ = 1.0 if labels is None else found.result().map50_95
        self._metric = "mAP50-95" if labels is not None else "mAP50-95 against float"
        self._notes = () if labels is None else (*labels.notes, *class_blind.notes)
        if labels is not None:
            class_blind.require_same_classes(str(labels.path))

    def prove(self, forms: Forms) -> Evidence:
        """Return the accuracy, no digit rounded. Raises `EdgeError` if INT8 cannot be run."""
        found = self._int8(forms, self._truths)
        return Evidence(
            metric=self._metric,
            images=len(self._images),
            float_=self.float_,
            int8=found.result().map50_95,
            int8_mac_share=forms.mac_share_int8,
            uncertainty=None if self._found is None else error_of_difference(self._found, found),
            unlabelled=self._unlabelled(),
            notes=self._notes,
        )

    def reported(self) -> Objects:
        return counted_objects(list(self._reported.values()), self._names, by="model")

    def _unlabelled(self) -> tuple[str, ...]:
        missing = set(() if self._labels is None else self._labels.unlabelled)
        return tuple(image.path.stem for image in self._images if image.path.stem in missing)

    def agreement(self, forms: Forms) -> float:
        """Return mAP50-95, 0 to 1, of INT8 by the table of `forms` with what the float model reports as the truth.

        No label is looked at. 0 where the float model reports nothing. Raises `EdgeError` if it cannot be run.
        """
        if not any(map(len, self._reported.values())):
            return 0.0
        return self._int8(forms, self._reported).result().map50_95

    def _int8(self, forms: Forms, truths: Mapping[str, GroundTruth]) -> Accumulator:
        if forms not in self._seen:  # what settled a tie is not inferred once more to be proven
            self._seen[forms] = [(image.sha256, one) for image, _, one in self._detect(forms, Precision.INT8)]
        found = Accumulator()
        for sha256, detections in self._seen[forms]:
            found.add(sha256, detections, truths[sha256])
        return found

    def _detect(self, forms: Forms, precision: Precision) -> Iterator[tuple[StillImage, ImageSize, Detections]]:
        work = Detecting(kind=self._kind, forms=forms, max_batch=_BATCH, precision=precision)
        with self._crew.take_on(work) as job:
            found_on = job.each(self._images, on_item=self._on_image)
            for image, (size, found) in zip(self._images, found_on, strict=True):
                yield image, size, found


def _reported(found: Detections) -> GroundTruth:
    """Return the detections that a service would report, as the truth."""
    kept = found.score >= _REPORTED_SCORE
    count = int(kept.sum())
    return GroundTruth(
        xyxy=found.xyxy[kept].astype(np.float64), class_id=found.class_id[kept], is_crowd=np.zeros(count, np.bool_)
    )
