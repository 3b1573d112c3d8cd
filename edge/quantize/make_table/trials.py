"""What a choice does to the outputs: each one is built as a Q/DQ model, run, and compared with the float model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.search import ChoiceKey, Int8Choice
from edge.engine.kind import EngineKind, EngineRequest
from edge.engine.select import build_and_load
from edge.evaluate.parity import compare_candidates, error_of_best
from edge.media.stills import StillSource
from edge.quantize.crew import CrewJob, ReadImage
from edge.quantize.feed import canvases_of, outputs_of
from edge.quantize.forms import Forms
from edge.quantize.make_table.new_tables import tried_table
from edge.quantize.make_table.references import THRESHOLD, References, above, head_of
from edge.quantize.stills import StillImage
from edge.types import Precision, StreamId
from edge.vision.heads import Candidates, decode_output

__all__ = ["ChoiceTrial", "Trials", "Trying"]

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

    Attributes:
        kind: of the engines.
        forms: of the float model.
        references: of the images.
        ranges: range by tensor and method.
        means: of each channel of tensors whose readers' biases are corrected.
        is_centred: activations are quantized around centres (ADR 16).
    """

    kind: EngineKind
    forms: Forms
    references: References
    ranges: Ranges
    means: Mapping[str, Sequence[float]]
    is_centred: bool

    @property
    def rows(self) -> int:
        """Each trial is one by itself."""
        return 1

    @property
    def is_small(self) -> bool:
        """Yes."""
        return True

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of engine."""
        return (self.kind.name,)

    def open(self) -> _Tester:
        """Return what tries."""
        return _Tester(self)


class _Tester:
    """`edge.quantize.crew.Tool` that makes an engine for each trial, and keeps canvases; several threads may use it."""

    def __init__(self, work: Trying) -> None:
        self._work = work
        self._head = head_of(work.forms.spec)
        self._canvases: dict[int, NDArray[np.uint8]] = {}
        self._reading = threading.Lock()

    @property
    def name(self) -> str:
        return self._work.kind.name

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
                source = StillSource(StreamId("images"), [path], preprocess=preprocess, read=read)
                source.open()
                (self._canvases[number],) = canvases_of(source, preprocess)

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
        """Yield the candidates of each image, above its threshold."""
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

    Args:
        job: of `Trying`.
        on_trial: called after each.
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
