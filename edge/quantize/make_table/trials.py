"""What a choice does to the outputs: each one is built as a Q/DQ model, run, and compared with the float model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.search import Choice, ChoiceKey
from edge.engine.kind import BuildRequest, EngineKind
from edge.engine.select import build_and_load
from edge.errors import DatasetError
from edge.evaluate.parity import best_candidates, compare_candidates, error_of_best
from edge.quantize.feed import canvases_of, outputs_of
from edge.quantize.forms import Forms
from edge.quantize.make_table.images import CalibrationImage, still_source
from edge.quantize.make_table.new_tables import tried_table
from edge.types import Precision
from edge.vision.heads import Candidates, Head, decode

__all__ = ["Trials"]

_THRESHOLD = 0.05  # candidates below say little, and there are very many
_BEST = 64  # candidates of an image, whatever their scores
_LOWEST = 1e-4  # of those scores: even an empty image has higher ones
_WORKERS = 2  # compiling takes as long as running, and uses one core each

Ranges = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the float model finds on an image: what is surely there, the best of all, and above which score to look."""

    sure: Candidates
    best: Candidates
    threshold: float


class Trials:
    """Implements `edge.calibrate.search.Measure` on some images, whose canvases it keeps; `by_best` is another one.

    Every model runs as one of many, so that errors do not depend on how many are tried side by side.

    Args:
        kind: of the engines.
        forms: of the float model.
        ranges: range by tensor and method.
        means: of each channel of tensors whose readers' biases are corrected.
        is_centred: activations are quantized around centres (ADR 16).
        on_trial: called after each.
    """

    def __init__(
        self,
        kind: EngineKind,
        forms: Forms,
        ranges: Ranges,
        means: Mapping[str, Sequence[float]],
        *,
        is_centred: bool,
        on_trial: Callable[[], None],
    ) -> None:
        spec = forms.spec
        self._kind = kind
        self._forms = forms
        self._means = means
        self._ranges = ranges
        self._is_centred = is_centred
        self._on_trial = on_trial
        self._head = Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides, is_multi_label=True)
        self._canvases: list[NDArray[np.uint8]] = []
        self._reference: list[_Reference] = []
        self._weight = 0.0
        self._known: dict[ChoiceKey, dict[int, tuple[float, float]]] = {}

    def prepare(self, images: Sequence[CalibrationImage]) -> None:
        """Try on `images` from now on, none of those that the ranges come from.

        Raises:
            EdgeError: if an image cannot be decoded, the float model cannot be run, or it finds nothing at all.
        """
        spec = self._forms.spec
        self._canvases = list(canvases_of(still_source(images, spec.preprocess), spec.preprocess))
        thresholds = [_LOWEST] * len(self._canvases)
        self._reference = [
            _reference_of(found)
            for found in self._found(self._forms, Precision.FP32, range(len(thresholds)), thresholds)
        ]
        parities = [compare_candidates(one.sure, one.sure, spec.family) for one in self._reference]
        self._weight = sum(parity.weight for parity in parities) / len(parities)
        if not self._weight:
            raise DatasetError(
                f"{spec.name} finds nothing at all on {len(images)} images, so that nothing can be compared",
                hint="calibrate with images of what the cameras will see; look at edge-deploy inspect",
            )

    def __call__(self, choices: Sequence[Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of what is surely on each of `images`, 0 for outputs equal to those of the float model."""
        return [tuple(sure for sure, _ in errors) for errors in self._errors_of(choices, images)]

    def by_best(self, choices: Sequence[Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of the best candidates of each of `images`, of which every image has as many."""
        return [tuple(best for _, best in errors) for errors in self._errors_of(choices, images)]

    def _errors_of(self, choices: Sequence[Choice], images: range) -> list[list[tuple[float, float]]]:
        """Return both errors of each choice on each image; what is known is not run again."""
        missing = {
            choice.key: (choice, left)
            for choice in choices
            if (left := [image for image in images if image not in self._known.setdefault(choice.key, {})])
        }
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="trial") as pool:
            for key, found in zip(missing, pool.map(lambda one: self._errors(*one), missing.values()), strict=True):
                self._known[key].update(found)
        return [[self._known[choice.key][image] for image in images] for choice in choices]

    def forms_of(self, choice: Choice) -> Forms:
        """Return the model in INT8 as `choice` has it."""
        return self._forms.by(tried_table(choice, self._ranges, is_centred=self._is_centred), means=self._means)

    def _errors(self, choice: Choice, images: Sequence[int]) -> dict[int, tuple[float, float]]:
        references, family = [self._reference[image] for image in images], self._forms.spec.family
        thresholds = [reference.threshold for reference in references]
        errors: dict[int, tuple[float, float]] = {}
        runs = self._found(self.forms_of(choice), Precision.INT8, images, thresholds)
        for image, reference, found in zip(images, references, runs, strict=True):
            sure = compare_candidates(reference.sure, _above(found, _THRESHOLD), family).error_for(self._weight)
            errors[image] = sure, error_of_best(reference.best, found, family)
        self._on_trial()
        return errors

    def _found(
        self, forms: Forms, precision: Precision, images: Sequence[int], thresholds: Sequence[float]
    ) -> Iterator[Candidates]:
        """Yield the candidates of each of `images`, above its threshold."""
        options = self._kind.options_type()
        request = BuildRequest(precision=precision, max_batch=1, options=options, is_one_of_many=True)
        engine = build_and_load(self._kind, forms, request)
        try:
            canvases = (self._canvases[image] for image in images)
            outputs = outputs_of(canvases, engine)
            for threshold, output in zip(thresholds, outputs, strict=True):
                yield decode(output, self._head, score_threshold=threshold)
        finally:
            engine.close()


def _reference_of(found: Candidates) -> _Reference:
    best = best_candidates(found, _BEST)
    lowest = float(best.score.min(initial=_THRESHOLD))
    return _Reference(sure=_above(found, _THRESHOLD), best=best, threshold=lowest / math.e)


def _above(found: Candidates, threshold: float) -> Candidates:
    return found.take(np.flatnonzero(found.score > threshold))
