"""What a choice does to the outputs: each one is built as a Q/DQ model, run, and compared with the float model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.search import Choice
from edge.engine.kind import BuildRequest, EngineKind
from edge.engine.select import build_and_load
from edge.errors import DatasetError
from edge.evaluate.parity import compare_candidates
from edge.quantize.calibration.draft import tried_table
from edge.quantize.calibration.images import CalibrationImage, still_source
from edge.quantize.feed import canvases_of, outputs_of
from edge.quantize.forms import Forms
from edge.types import Precision
from edge.vision.heads import Candidates, Head, decode

__all__ = ["Trials"]

_THRESHOLD = 0.05  # candidates below say little, and there are very many
_WORKERS = 2  # compiling takes as long as running, and uses one core each

Ranges = Mapping[str, Mapping[str, float]]


class Trials:
    """Implements `edge.calibrate.search.Measure` on some images, whose canvases it keeps.

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
        self._reference: list[Candidates] = []
        self._weight = 0.0

    def prepare(self, images: Sequence[CalibrationImage]) -> None:
        """Try on `images` from now on, none of those that the ranges come from.

        Raises:
            EdgeError: if an image cannot be decoded, the float model cannot be run, or it finds nothing at all.
        """
        spec = self._forms.spec
        self._canvases = list(canvases_of(still_source(images, spec.preprocess), spec.preprocess))
        self._reference = self._found(self._forms, Precision.FP32, range(len(self._canvases)))
        parities = [compare_candidates(one, one, spec.family) for one in self._reference]
        self._weight = sum(parity.weight for parity in parities) / len(parities)
        if not self._weight:
            raise DatasetError(
                f"{spec.name} finds nothing at all on {len(images)} images, so that nothing can be compared",
                hint="calibrate with images of what the cameras will see; look at edge-deploy inspect",
            )

    def __call__(self, choices: Sequence[Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of each choice on each of `images`, 0 for outputs equal to those of the float model."""
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="trial") as pool:
            return list(pool.map(lambda choice: self._errors(choice, images), choices))

    def forms_of(self, choice: Choice) -> Forms:
        """Return the model in INT8 as `choice` has it."""
        return self._forms.by(tried_table(choice, self._ranges, is_centred=self._is_centred), means=self._means)

    def _errors(self, choice: Choice, images: range) -> tuple[float, ...]:
        found, family = self._found(self.forms_of(choice), Precision.INT8, images), self._forms.spec.family
        pairs = zip((self._reference[image] for image in images), found, strict=True)
        errors = tuple(compare_candidates(*pair, family).error_for(self._weight) for pair in pairs)
        self._on_trial()
        return errors

    def _found(self, forms: Forms, precision: Precision, images: range) -> list[Candidates]:
        """Return the candidates of each of `images`."""
        options = self._kind.options_type()
        request = BuildRequest(precision=precision, max_batch=1, options=options, is_one_of_many=True)
        engine = build_and_load(self._kind, forms, request)
        try:
            canvases = (self._canvases[image] for image in images)
            return [decode(out, self._head, score_threshold=_THRESHOLD) for out in outputs_of(canvases, engine)]
        finally:
            engine.close()
