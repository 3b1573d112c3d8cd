"""Tries choices: each one is built as a Q/DQ model, run, and compared with the float model."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.search import ChoiceKey, Int8Choice
from edge.engine.kind import EngineKind, EngineRequest, build_and_load
from edge.errors import DatasetError
from edge.evaluate.parity import best_candidates, compare_candidates, error_of_best
from edge.protocols import Engine
from edge.quantize.crew import Crew, CrewJob, ReadImage
from edge.quantize.feed import StillsWork, canvases_of, outputs_of, still_source
from edge.quantize.forms import Forms
from edge.quantize.make_table.new_tables import tried_table
from edge.quantize.stills import StillImage
from edge.types import Precision
from edge.vision.heads import Candidates, decode_output, head_of

__all__ = ["ChoiceTrial", "FloatReference", "References", "THRESHOLD", "Trials", "Trying", "above", "references_of"]

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
        source = still_source([one.path for one in items], preprocess, read=read)
        for output in outputs_of(canvases_of(source, preprocess), engine):
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
                (self._canvases[number],) = canvases_of(still_source([path], preprocess, read=read), preprocess)

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
    """Implements `edge.calibrate.search.Measure` on some images; `by_best` is another one.

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
