"""INT8 against float, layer by layer: the same images through both models, and both timed on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.apply import quantized_model, usable_table
from edge.calibrate.histogram import Histogram
from edge.calibrate.observer import Observer
from edge.engine.openvino.activations import OpenVinoActivations
from edge.engine.openvino.profile import LayerProfiler
from edge.errors import DatasetError, SourceError
from edge.evaluate.layers import Layer, LayerError, LayerErrors, LayerTimes, Quantization
from edge.media.stills import StillSource, list_images
from edge.model.cost import cost_of_model, resolved_for_one
from edge.model.graph import Graph, Node, load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.placement import called
from edge.model.qdq.scales import LEVELS, scale_of
from edge.model.qdq.twins import with_float_twins
from edge.protocols import ActivationEngine
from edge.quantize.feed import feed
from edge.types import ModelSpec, Preprocess, StreamId

__all__ = ["TIMED_RUNS", "Comparison", "ComparisonOptions", "compare_model", "images_to_compare"]

TIMED_RUNS = 24  # of either model, in turn, so that a machine that slows down slows both
_WARM_UPS = 4
_TIMED_CANVASES = 4

Tensors = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """What to compare; `limit` is how many images are taken at most, by name."""

    model: Path
    table: Path
    images: Path
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is a number of images, got {self.limit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out of it.

    Attributes:
        layers: the weighted nodes, in the order of the model.
        output_sqnr_db: signal to noise of the model's output tensor.
        inputs: |x| of each activation that a layer reads, in float.
    """

    spec: ModelSpec
    table: Path
    images: int
    engine: str
    output_sqnr_db: float
    layers: tuple[LayerError, ...]
    inputs: Mapping[str, Histogram]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable, and what is not finite is null."""
        return {
            "model": self.spec.name,
            "table": str(self.table),
            "images": self.images,
            "engine": self.engine,
            "output_sqnr_db": round(self.output_sqnr_db, 3) if np.isfinite(self.output_sqnr_db) else None,
            "layers": [layer.as_json() for layer in self.layers],
        }


def images_to_compare(options: ComparisonOptions) -> list[Path]:
    """Return the images that `options` choose.

    Raises:
        DatasetError: if there is none.
    """
    return list_images(options.images)[: options.limit]


def compare_model(options: ComparisonOptions, *, on_step: Callable[[], None] = lambda: None) -> Comparison:
    """Return what each layer loses and saves in INT8 by a table.

    Args:
        options: model, table, images.
        on_step: called after each image, and after each of the TIMED_RUNS.

    Raises:
        EdgeError: if model, table or images cannot be used; nothing has run then, but for an image that is damaged.
    """
    spec, paths = inspect_model(options.model), images_to_compare(options)
    quantized = quantized_model(usable_table(options.table, spec), spec)
    graph = resolved_for_one(load_graph(spec.path), spec)
    twinned, twins = with_float_twins(quantized.model, graph, quantized.quantized_nodes)
    layers = _layers(graph, spec, quantized, twins)
    errors = LayerErrors({layer.input_: layer.quantization for layer in layers if layer.quantization is not None})
    observer, both = Observer(), _Both(spec, twinned, _watched(layers), inside=tuple(twins.values()))
    try:
        for exact, rounded in _outputs(paths, both, on_step):
            for name, values in exact.items():
                errors.add(name, values, rounded[name])
            for layer in layers:
                if layer.twin is not None:
                    errors.add(layer.twin, rounded[layer.twin], rounded[layer.output])
            for name in dict.fromkeys(layer.input_ for layer in layers):
                observer.observe(name, exact[name])
        engine = both.name
    finally:
        both.close()
    times = _times(spec, quantized.model, layers, canvases=both.first_canvases, on_run=on_step)
    all_macs = sum(layer.macs for layer in layers)
    return Comparison(
        spec=spec,
        table=options.table,
        images=len(paths),
        engine=engine,
        output_sqnr_db=errors.sqnr_db(spec.output_name),
        layers=tuple(errors.result(layer, all_macs=all_macs, times=times.get(layer.name)) for layer in layers),
        inputs=observer.histograms,
    )


class _Both:
    """The float model and the INT8 one as one engine: what is on a canvas goes through both.

    `names` are tensors of both, `inside` more of the INT8 one.

    Tensors that are given out are not fused away, so that OpenVINO (2026.4) computes the INT8 model in other steps than
    without, and some values fall to the other of two levels. Measured on yolov5n and yolox_nano, the SQNR of the output
    moves by less than 0.1 dB, and the difference itself lies 9 to 18 dB below the error. Times are taken of models that
    give out nothing.
    """

    def __init__(self, spec: ModelSpec, quantized: bytes, names: Sequence[str], *, inside: Sequence[str]) -> None:
        rows = spec.batch or 1
        self._float: ActivationEngine = OpenVinoActivations(spec, names, max_batch=rows)
        self._int8: ActivationEngine = OpenVinoActivations(
            dataclasses.replace(spec, is_quantized=True), [*names, *inside], max_batch=rows, content=quantized
        )
        self.first_canvases: list[NDArray[np.uint8]] = []

    @property
    def name(self) -> str:
        return self._float.name

    @property
    def preprocess(self) -> Preprocess:
        return self._float.preprocess

    @property
    def max_batch(self) -> int:
        return self._float.max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        return self._float.canvases

    def start(self, index: int, count: int) -> None:
        canvas = self.canvases[index]
        if len(self.first_canvases) < _TIMED_CANVASES:
            self.first_canvases.append(canvas.copy())
        self._int8.canvases[index][:] = canvas
        self._float.start(index, count)
        self._int8.start(index, count)

    def wait(self, index: int) -> tuple[Tensors, Tensors]:
        return self._float.wait(index), self._int8.wait(index)

    def close(self) -> None:
        self._float.close()
        self._int8.close()


def _outputs(paths: Sequence[Path], both: _Both, on_image: Callable[[], None]) -> Iterator[tuple[Tensors, Tensors]]:
    source = StillSource(StreamId("images"), paths, preprocess=both.preprocess)
    try:
        source.open()
        for placed, tensors in feed(source, both):
            yield tensors
            for _ in placed:
                on_image()
    except SourceError as error:  # a folder of images is data of the user's, not a stream that may come back
        raise DatasetError(error.problem, hint="mend or remove it") from error
    finally:
        source.close()


def _layers(graph: Graph, spec: ModelSpec, quantized: QdqModel, twins: Mapping[str, str]) -> tuple[Layer, ...]:
    macs = {node.output: node.macs for node in cost_of_model(graph, spec).nodes}
    weighted = {*quantized.quantized_nodes, *quantized.float_nodes}
    return tuple(
        Layer(
            name=called(node),
            op_type=node.op_type,
            input_=_activation(node, graph),
            output=node.outputs[0],
            macs=macs.get(node.outputs[0], 0),
            quantization=_quantization(_activation(node, graph), node, quantized),
            twin=twins.get(called(node)),
        )
        for node in graph.nodes
        if called(node) in weighted
    )


def _activation(node: Node, graph: Graph) -> str:
    """Return the activation that `node` reads; the first one where it multiplies two."""
    return next(name for name in node.inputs if graph.is_varying(name))


def _quantization(read: str, node: Node, quantized: QdqModel) -> Quantization | None:
    if called(node) not in quantized.quantized_nodes:
        return None
    step = float(scale_of(quantized.ranges[read]))
    return Quantization(range_=max(quantized.ranges[read], LEVELS * step), step=step)


def _watched(layers: Sequence[Layer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for layer in layers for name in (layer.input_, layer.output)))


def _times(
    spec: ModelSpec,
    quantized: bytes,
    layers: Sequence[Layer],
    *,
    canvases: Sequence[NDArray[np.uint8]],
    on_run: Callable[[], None],
) -> dict[str, LayerTimes]:
    names = [layer.name for layer in layers]
    exact = LayerProfiler(spec, names)
    rounded = LayerProfiler(dataclasses.replace(spec, is_quantized=True), names, content=quantized)
    for _ in range(_WARM_UPS):
        exact.warm_up(canvases[0])
        rounded.warm_up(canvases[0])
    for run in range(TIMED_RUNS):
        exact.run(canvases[run % len(canvases)])
        rounded.run(canvases[run % len(canvases)])
        on_run()
    float_s, int8_s = exact.times(), rounded.times()
    return {name: LayerTimes(float_s=float_s[name], int8_s=int8_s[name]) for name in float_s.keys() & int8_s.keys()}
