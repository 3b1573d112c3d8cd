"""From tensors of the float model on images to ranges, and from a choice among them to a table.

TensorRT's implicit INT8 and the DLA want ranges of the tensors that no Q/DQ pair stands on, too. An operator that
enlarges nothing needs no look: a Concat holds no more than what goes in, a sigmoid no more than 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Histogram, Method, Observer, entropy, minmax, mse, percentile
from edge.calibrate.measurements import Int8Choice
from edge.calibrate.observations import Observations, largest_of_both
from edge.calibrate.table import CalibrationTable, MadeBy, ModelId, TensorRange
from edge.model.graph import Graph
from edge.protocols import AveragingEngine, ObservingEngine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import StillsWork, run_stills
from edge.quantize.stills import StillImage
from edge.types import MagnitudeCounts, ModelSpec, Observed

__all__ = [
    "DEAD",
    "DEAD_RANGE",
    "MeansOfEach",
    "Observing",
    "SEARCHED_METHODS",
    "derived_peaks",
    "is_range",
    "made_table",
    "mean_of_all",
    "ranges_by_method",
    "tensors_to_look_at",
    "tried_table",
    "with_means",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing(StillsWork[ObservingEngine, Observations]):
    """Their observations, in parts that merge exactly: neither the order of the images nor the batch matters.

    `run` raises `EdgeError` if an image cannot be decoded, inference fails, or a tensor of `names` is not finite.
    """

    names: tuple[str, ...]  # tensors to count
    peaks_of: tuple[str, ...]  # tensors whose largest |x| is kept

    def engine(self) -> ObservingEngine:
        spec, content = self.forms.spec, self.forms.float_model()
        return self.kind.observing(
            spec, self.names, largest_of=self.peaks_of, max_batch=self.max_batch, content=content
        )

    def run(
        self, engine: ObservingEngine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Observations]:
        observer, peaks = Observer(), dict.fromkeys(self.peaks_of, 0.0)
        for placed, tensors in run_stills([image.path for image in items], engine, read=read):
            for name in self.names:
                observer.observe(name, tensors[name])
            peaks = largest_of_both(peaks, {name: _largest(tensors[name]) for name in peaks})
            for _ in placed:
                on_item()
        yield Observations(
            image_sha256s=tuple(sorted(image.sha256 for image in items)),
            histograms=observer.histograms,
            peaks=peaks,
        )


def _largest(values: Observed) -> float:
    assert not isinstance(values, MagnitudeCounts), "of what is not counted there are values"
    return float(values.max())


_DIGITS = 5  # in a table; far more than the images say

Means = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeansOfEach(StillsWork[AveragingEngine, Means]):
    """The mean of each channel of `names`, which are tensors, float64 (C,), image by image."""

    names: tuple[str, ...]

    def engine(self) -> AveragingEngine:
        spec, content = self.forms.spec, self.forms.float_model()
        return self.kind.averaging(spec, self.names, max_batch=self.max_batch, content=content)

    def run(
        self, engine: AveragingEngine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Means]:
        for placed, means in run_stills([image.path for image in items], engine, read=read):
            for row in range(len(placed)):
                yield {name: means[name][row].copy() for name in self.names}
                on_item()


def mean_of_all(means: Iterable[Means]) -> dict[str, tuple[float, ...]]:
    """Return the mean of each channel over all images, whose order matters in the last bit."""
    sums: dict[str, NDArray[np.float64]] = {}
    images = 0
    for found in means:
        images += 1
        for name, values in found.items():
            sums[name] = sums[name] + values if name in sums else values
    return {name: tuple(float(f"{value / images:.{_DIGITS}g}") for value in values) for name, values in sums.items()}


_BOUNDED = frozenset(("HardSigmoid", "Sigmoid", "Softmax", "Tanh"))  # by 1
# fmt: off
_MOVING_FIRST = frozenset((
    "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample",
))
# fmt: on


def tensors_to_look_at(graph: Graph, tensors: Sequence[str], *, scores: Collection[str]) -> tuple[str, ...]:
    """Return those of `tensors` whose peak does not follow from others.

    `graph`: the float model. `tensors`: all that no histogram is kept of. `scores`: to be looked at in any case: that
    an object was seen shows there.
    """
    return tuple(name for name in tensors if name in scores or _sources(graph, name) is None)


def derived_peaks(graph: Graph, tensors: Sequence[str], known: Mapping[str, float]) -> dict[str, float]:
    """Return the peaks of `tensors` that follow from those that are `known`, in the order of the graph."""
    peaks, wanted = dict(known), set(tensors)
    for name in (name for node in graph.nodes for name in node.outputs if name in wanted):
        sources = _sources(graph, name)
        if name not in peaks and sources is not None and all(source in peaks for source in sources):
            peaks[name] = max((peaks[source] for source in sources), default=1.0)
    return {name: peaks[name] for name in tensors if name in peaks and name not in known}


def is_range(peak: float) -> bool:
    """Return whether a scale can be made of `peak`: a model may hold infinities, as masks do, and dead tensors."""
    return math.isfinite(peak) and peak > 0


def _sources(graph: Graph, tensor: str) -> tuple[str, ...] | None:
    """Return the tensors that bound `tensor`, () where 1 does, None where nothing does."""
    node = graph.producer(tensor)
    if node is None:
        return None
    if node.op_type in _BOUNDED:
        return ()
    if node.op_type == "Concat":
        return node.inputs if all(map(graph.is_varying, node.inputs)) else None
    if node.op_type in _MOVING_FIRST and node.attributes.get("mode") != "cubic":
        return node.inputs[:1]
    return None


# By the names that a table gives them; the first one wins where two are equally good.
SEARCHED_METHODS: Mapping[str, Callable[[Histogram], float]] = {
    "mse": mse,
    "percentile-99.999": functools.partial(percentile, percent=99.999),
    "percentile": percentile,
    "minmax": minmax,
    "entropy": entropy,
}
DEAD = "dead"
DEAD_RANGE = 127.0  # scale 1: zeros stay zeros, and what is below 0.5 becomes one


def ranges_by_method(observations: Observations, method: Method | None) -> dict[str, dict[str, float]]:
    """Return the range of each counted tensor by `method`, None: by each of those that are searched among."""
    methods = SEARCHED_METHODS if method is None else {method.value: SEARCHED_METHODS[method.value]}
    return {
        tensor: {name: found(histogram) for name, found in methods.items()}
        for tensor, histogram in sorted(observations.histograms.items())
    }


def made_table(
    spec: ModelSpec,
    graph: Graph,
    observations: Observations,
    ranges: Mapping[str, Mapping[str, float]],
    choice: Int8Choice,
    *,
    method: str,
    is_centred: bool,
    engine: str,
) -> CalibrationTable:
    """Return the table of `choice`, without evidence; tensors that no Q/DQ pair stands on have their peak as range.

    What follows from others follows from their ranges, not from their peaks: a Concat runs in INT8 with the scale of
    what goes in.
    """
    tensors = {
        tensor: TensorRange(amax=ranges[tensor][name], method=name)
        if ranges[tensor][name]
        else TensorRange(amax=DEAD_RANGE, method=DEAD)
        for tensor, name in choice.methods.items()
    }
    known = {name: tensor.amax for name, tensor in tensors.items()} | dict(observations.peaks)
    others = [name for node in graph.nodes for name in node.outputs if name and graph.is_varying(name)]
    for label, peaks in (("minmax", observations.peaks), ("derived", derived_peaks(graph, others, known))):
        tensors |= {name: TensorRange(amax=peak, method=label) for name, peak in peaks.items() if is_range(peak)}
    return CalibrationTable(
        model=ModelId(name=spec.name, sha256=spec.sha256),
        preprocess=spec.preprocess.as_json(),
        preprocess_sha256=spec.preprocess.sha256,
        dataset=observations.dataset,
        method=method,
        made_by=MadeBy(engine=engine),
        tensors=tensors,
        centred=is_centred,
        padded=is_centred,
        keep_float=tuple(sorted(choice.floats)),
        float_reasons=choice.floats,
    )


def tried_table(choice: Int8Choice, ranges: Mapping[str, Mapping[str, float]], *, is_centred: bool) -> CalibrationTable:
    """Return what `choice` says of the tensors that pairs stand on, and no more: enough to try it, not to keep it."""
    return CalibrationTable(
        model=None,
        preprocess=None,
        preprocess_sha256=None,
        dataset=None,
        method="trial",
        made_by=MadeBy(engine="trial"),
        tensors={name: TensorRange(amax=ranges[name][how], method=how) for name, how in choice.methods.items()},
        centred=is_centred,
        padded=is_centred,
        keep_float=tuple(choice.floats),
    )


def with_means(table: CalibrationTable, means: Mapping[str, Sequence[float]]) -> CalibrationTable:
    """Return `table` with the means of the channels of its tensors; a dead tensor has no range, and needs none."""
    seen = {
        name: msgspec.structs.replace(tensor, means=tuple(means[name]))
        for name, tensor in table.tensors.items()
        if name in means
    }
    return msgspec.structs.replace(table, tensors={**table.tensors, **seen})
