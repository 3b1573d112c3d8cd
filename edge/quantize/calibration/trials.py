"""What a choice does to the outputs: each one is built as a Q/DQ model, run, and compared with the float model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.search import Choice
from edge.errors import DatasetError
from edge.evaluate.parity import compare_candidates
from edge.model.graph import Graph
from edge.model.qdq import QdqModel, insert_qdq
from edge.protocols import Engine
from edge.quantize.calibration.images import CalibrationImage, still_source
from edge.quantize.engines import make_engine
from edge.quantize.feed import canvases_of
from edge.types import EngineOutput, ModelSpec, Precision
from edge.vision.heads import Candidates, Head, decode

__all__ = ["Trials", "ranges_of"]

_THRESHOLD = 0.05  # candidates below say little, and there are very many
_WORKERS = 2  # compiling takes as long as running, and uses one core each

Ranges = Mapping[str, Mapping[str, float]]


class Trials:
    """Implements `edge.calibrate.search.Measure` on some images, whose canvases it keeps.

    Every model runs on one thread, so that errors do not depend on how many are tried side by side.

    Args:
        spec: the float model.
        graph: its graph.
        ranges: range by tensor and method.
        means: of each channel of tensors whose readers' biases are corrected.
        on_trial: called after each.
    """

    def __init__(
        self,
        spec: ModelSpec,
        graph: Graph,
        ranges: Ranges,
        means: Mapping[str, Sequence[float]],
        *,
        on_trial: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._means = means
        self._graph = graph
        self._ranges = ranges
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
        source = still_source(images, self._spec.preprocess)
        self._canvases = list(canvases_of(source, self._spec.preprocess))
        self._reference = self._found(None, range(len(self._canvases)))
        parities = [compare_candidates(one, one, self._spec.family) for one in self._reference]
        self._weight = sum(parity.weight for parity in parities) / len(parities)
        if not self._weight:
            raise DatasetError(
                f"{self._spec.name} finds nothing at all on {len(images)} images, so that nothing can be compared",
                hint="calibrate with images of what the cameras will see; look at edge-deploy inspect",
            )

    def __call__(self, choices: Sequence[Choice], images: range) -> list[tuple[float, ...]]:
        """Return the errors of each choice on each of `images`, 0 for outputs equal to those of the float model."""
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="trial") as pool:
            return list(pool.map(lambda choice: self._errors(choice, images), choices))

    def quantized(self, choice: Choice) -> QdqModel:
        """Return the model that `choice` stands for."""
        ranges = ranges_of(choice, self._ranges)
        return insert_qdq(self._graph, self._spec, ranges=ranges, keep_float=tuple(choice.floats), means=self._means)

    def _errors(self, choice: Choice, images: range) -> tuple[float, ...]:
        found = self._found(self.quantized(choice).model, images)
        pairs = zip((self._reference[image] for image in images), found, strict=True)
        errors = tuple(compare_candidates(*pair, self._spec.family).error_for(self._weight) for pair in pairs)
        self._on_trial()
        return errors

    def _found(self, quantized: bytes | None, images: range) -> list[Candidates]:
        """Return the candidates of each of `images`."""
        precision = Precision.FP32 if quantized is None else Precision.INT8
        engine = make_engine(self._spec, precision=precision, max_batch=1, content=quantized, threads=1)
        try:
            return [
                decode(output, self._head, score_threshold=_THRESHOLD)
                for output in _outputs(engine, (self._canvases[image] for image in images))
            ]
        finally:
            engine.close()


def ranges_of(choice: Choice, ranges: Ranges) -> dict[str, float]:
    """Return the range of each tensor by the method that was chosen for it."""
    return {tensor: ranges[tensor][method] for tensor, method in choice.methods.items()}


def _outputs(engine: Engine, canvases: Iterable[NDArray[np.uint8]]) -> Iterator[EngineOutput]:
    for canvas in canvases:
        engine.canvases[0][0] = canvas
        engine.start(0, 1)
        yield engine.wait(0)
