"""Tries choices: each one is built as a Q/DQ model, run, and compared with the float model; proves the chosen one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.measurements import ChoiceKey, Int8Choice
from edge.calibrate.table import Evidence, Objects
from edge.engine.kind import EngineKind, EngineRequest, build_and_load
from edge.errors import DatasetError
from edge.evaluate.class_names import ClassBlind
from edge.evaluate.coco_map import Accumulator, error_of_difference
from edge.evaluate.layers import best_candidates, compare_candidates, error_of_best
from edge.evaluate.truth import GroundTruth, Labels
from edge.protocols import Engine
from edge.quantize.crew import Crew, CrewJob, ReadImage
from edge.quantize.feed import Detecting, StillsWork, outputs_of, still_canvases
from edge.quantize.forms import Forms
from edge.quantize.new_tables import tried_table
from edge.quantize.stills import StillImage
from edge.quantize.subject import counted_objects
from edge.types import Detections, ImageSize, Precision
from edge.vision.heads import Candidates, decode_output, head_of

__all__ = [
    "ChoiceTrial",
    "FloatReference",
    "Prover",
    "References",
    "THRESHOLD",
    "Trials",
    "Trying",
    "above",
    "references_of",
]

THRESHOLD = 0.05  # candidates below say little, and there are very many
_BEST = 64  # candidates of an image, whatever their scores
_LOWEST = 1e-4  # of those scores: even an empty image has higher ones


@dataclass(frozen=True, slots=True)
class FloatReference:
    """The float model's detections of an image: the sure ones, the best of all, and the score to look above."""

    sure: Candidates
    best: Candidates
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Those of some images in their order; `weight` is the mean one of what is surely there (`Parity.error_for`)."""

    images: tuple[StillImage, ...]
    by_image: tuple[FloatReference, ...]
    weight: float


def references_of(kind: EngineKind, forms: Forms, images: Sequence[StillImage], *, crew: Crew) -> References:
    """Return what the float model finds on `images`. Raises DatasetError if an image cannot be used, or nothing at all
    is found on any of them; EngineError if the float model cannot be run.
    """
    family = forms.spec.family
    with crew.take_on(_Referring(kind=kind, forms=forms, max_batch=1)) as job:
        found = tuple(job.each(images, on_item=lambda: None))
    weight = sum(compare_candidates(one.sure, one.sure, family).weight for one in found) / len(found)
    if not weight:
        raise DatasetError(
            f"{forms.spec.name} finds nothing at all on {len(images)} images, so that nothing can be compared",
            hint="calibrate with images of what the cameras will see; look at edge-deploy inspect",
        )
    return References(images=tuple(images), by_image=found, weight=weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Referring(StillsWork[Engine, FloatReference]):
    def engine(self) -> Engine:
        options = self.kind.options_type()
        request = EngineRequest(precision=Precision.FP32, max_batch=1, options=options, is_one_of_many=True)
        return build_and_load(self.kind, self.forms, request)

    def run(
        self, engine: Engine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[FloatReference]:
        preprocess, head = engine.preprocess, head_of(self.forms.spec, is_multi_label=True)
        canvases = still_canvases([one.path for one in items], preprocess, read=read)
        for output in outputs_of(canvases, engine):
            yield _reference_of(decode_output(output, head, score_threshold=_LOWEST))
            on_item()


def above(found: Candidates, threshold: float) -> Candidates:
    return found.take(np.flatnonzero(found.score > threshold))


def _reference_of(found: Candidates) -> FloatReference:
    best = best_candidates(found, _BEST)
    lowest = float(best.score.min(initial=THRESHOLD))
    return FloatReference(sure=above(found, THRESHOLD), best=best, threshold=lowest / math.e)


_WORKERS = 2  # compiling takes as long as running, and uses one core each

Ranges = Mapping[str, Mapping[str, float]]
Errors = tuple[float, float]  # of what is surely on an image, of its best candidates


@dataclass(frozen=True, slots=True)
class ChoiceTrial:
    """A choice, and the images to try it on, by number."""

    choice: Int8Choice
    images: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """`edge.quantize.crew.CrewWork` on trials: the errors on each image.

    Every model runs as one of many, so that errors do not depend on how many are tried side by side.
    """

    kind: EngineKind
    forms: Forms  # of the float model
    references: References
    ranges: Ranges  # range by tensor and method
    means: Mapping[str, Sequence[float]]  # of each channel of tensors whose readers' biases are corrected
    is_centred: bool  # activations are quantized around centres (ADR 2)
    rows = 1  # each trial is one by itself
    is_small = True

    def open(self) -> _Tester:
        return _Tester(self)


class _Tester:
    """`edge.quantize.crew.Tool` that makes an engine for each trial, and keeps canvases; several threads may use it."""

    def __init__(self, work: Trying) -> None:
        self.name = work.kind.name
        self._work = work
        self._head = head_of(work.forms.spec, is_multi_label=True)
        self._canvases: dict[int, NDArray[np.uint8]] = {}
        self._reading = threading.Lock()

    def images(self, items: Sequence[ChoiceTrial]) -> Sequence[StillImage]:
        wanted = {number for trial in items for number in trial.images} - self._canvases.keys()
        return [self._work.references.images[number] for number in sorted(wanted)]

    def run(
        self, items: Sequence[ChoiceTrial], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[tuple[Errors, ...]]:
        for number in sorted({number for trial in items for number in trial.images}):
            self._canvas(number, read)
        with ThreadPoolExecutor(min(_WORKERS, max(1, len(items))), thread_name_prefix="trial") as pool:
            for errors in pool.map(self._errors, items):
                yield errors
                on_item()

    def close(self) -> None:
        self._canvases.clear()

    def _canvas(self, number: int, read: ReadImage) -> None:
        path, preprocess = self._work.references.images[number].path, self._work.forms.spec.preprocess
        with self._reading:
            if number not in self._canvases:
                (self._canvases[number],) = still_canvases([path], preprocess, read=read)

    def _errors(self, trial: ChoiceTrial) -> tuple[Errors, ...]:
        work, family = self._work, self._work.forms.spec.family
        references = [work.references.by_image[number] for number in trial.images]
        runs = self._found(trial, [reference.threshold for reference in references])
        errors = []
        for reference, found in zip(references, runs, strict=True):
            sure = compare_candidates(reference.sure, above(found, THRESHOLD), family)
            errors.append((sure.error_for(work.references.weight), error_of_best(reference.best, found, family)))
        return tuple(errors)

    def _found(self, trial: ChoiceTrial, thresholds: Sequence[float]) -> Iterator[Candidates]:
        work = self._work
        forms = work.forms.by(tried_table(trial.choice, work.ranges, is_centred=work.is_centred), means=work.means)
        options = work.kind.options_type()
        request = EngineRequest(precision=Precision.INT8, max_batch=1, options=options, is_one_of_many=True)
        engine = build_and_load(work.kind, forms, request)
        try:
            outputs = outputs_of((self._canvases[number] for number in trial.images), engine)
            for threshold, output in zip(thresholds, outputs, strict=True):
                yield decode_output(output, self._head, score_threshold=threshold)
        finally:
            engine.close()


class Trials:
    """Implements `edge.calibrate.measurements.Measure` on some images; `by_best` is another one.

    `on_trial`: called after each.
    """

    def __init__(self, job: CrewJob[ChoiceTrial, tuple[Errors, ...]], *, on_trial: Callable[[], None]) -> None:
        self._job = job
        self._on_trial = on_trial
        self._known: dict[ChoiceKey, dict[int, Errors]] = {}

    def __call__(self, choices: Sequence[Int8Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of what is surely on each of `images`, 0 for outputs equal to those of the float model."""
        return [tuple(sure for sure, _ in errors) for errors in self._errors_of(choices, images)]

    def by_best(self, choices: Sequence[Int8Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of the best candidates of each of `images`, of which every image has as many."""
        return [tuple(best for _, best in errors) for errors in self._errors_of(choices, images)]

    def _errors_of(self, choices: Sequence[Int8Choice], images: range) -> list[list[Errors]]:
        """Return both errors of each choice on each image; what is known is not run again."""
        missing = {
            choice.key: ChoiceTrial(choice, left)
            for choice in choices
            if (left := tuple(image for image in images if image not in self._known.setdefault(choice.key, {})))
        }
        found = self._job.each(list(missing.values()), on_item=self._on_trial)
        for (key, trial), errors in zip(missing.items(), found, strict=True):
            self._known[key].update(zip(trial.images, errors, strict=True))
        return [[self._known[choice.key][image] for image in images] for choice in choices]


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
