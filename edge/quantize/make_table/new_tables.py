"""From what was observed to ranges, and from a choice among them to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edge.calibrate.histogram import Histogram
from edge.calibrate.observations import Observations
from edge.calibrate.peaks import derived_peaks, is_range
from edge.calibrate.search import Int8Choice
from edge.calibrate.table import CalibrationTable, MadeBy, ModelId, TensorRange
from edge.calibrate.thresholds.method import Method, range_of
from edge.model.graph import Graph
from edge.types import ModelSpec

__all__ = ["DEAD", "DEAD_RANGE", "SEARCHED_METHODS", "made_table", "ranges_by_method", "tried_table", "with_means"]

# By the names that a table gives them; the first one wins where two are equally good.
SEARCHED_METHODS: Mapping[str, tuple[Method, float]] = {
    "mse": (Method.MSE, 0.0),
    "percentile-99.999": (Method.PERCENTILE, 99.999),
    "percentile": (Method.PERCENTILE, 99.99),
    "minmax": (Method.MINMAX, 0.0),
    "entropy": (Method.ENTROPY, 0.0),
}
DEAD = "dead"
DEAD_RANGE = 127.0  # scale 1: zeros stay zeros, and what is below 0.5 becomes one


def ranges_by_method(observations: Observations, method: Method | None) -> dict[str, dict[str, float]]:
    """Return the range of each counted tensor by `method`, None: by each of those that are searched among."""
    methods = SEARCHED_METHODS if method is None else {method.value: SEARCHED_METHODS[method.value]}
    return {
        tensor: {name: _range(histogram, *how) for name, how in methods.items()}
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


def _range(histogram: Histogram, method: Method, percent: float) -> float:
    return range_of(histogram, method, percent=percent) if percent else range_of(histogram, method)
