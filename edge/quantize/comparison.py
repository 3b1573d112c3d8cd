"""The comparison as a whole: images through both models, errors layer by layer, times."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.lint import usable_table
from edge.engine.averaging import ByEngine
from edge.engine.kind import EngineKind, QdqForm
from edge.errors import EngineError
from edge.evaluate.layers import ComparedLayer, LayerError, LayerErrors, LayerTimes, Quantization
from edge.media.images import list_images
from edge.model.cost import cost_of_model, resolved_for_one
from edge.model.graph import Graph, Node, read_model_file
from edge.model.inspect import inspect_file
from edge.model.qdq.emulated import with_float_copies
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.placement import called
from edge.model.qdq.scales import LEVELS, scale_of
from edge.protocols import ActivationEngine
from edge.quantize.crew import Crew, Here, ReadImage
from edge.quantize.feed import StillsWork, run_stills, still_canvases
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage, each_decoded
from edge.types import ModelSpec

__all__ = ["Comparison", "ComparisonOptions", "TIMED_RUNS", "compare_model", "images_to_compare", "times_of"]

TIMED_RUNS = 24  # of either model, in turn, so that a machine that slows down slows both
_WARM_UPS = 4


def times_of(
    kind: EngineKind,
    forms: Forms,
    quantized: bytes,
    layers: Sequence[ComparedLayer],
    *,
    canvases: Sequence[NDArray[np.uint8]],
    on_run: Callable[[], None],
) -> tuple[Mapping[str, LayerTimes], str | None]:
    """Return times of INT8 and float by layer, of those that are known alone; and why engines of this kind tell none at
    all, None where they do.

    `forms`: of the float model. `canvases`: uint8 (batch of the model or 1, H, W, 3) each, to run in turn. `on_run`:
    called after each of TIMED_RUNS. Raises `EngineError` if an inference failed.
    """
    names, in_int8 = [layer.name for layer in layers], dataclasses.replace(forms.spec, is_quantized=True)
    with contextlib.ExitStack() as opened:
        try:
            exact = opened.enter_context(
                contextlib.closing(kind.profiler(forms.spec, names, content=forms.float_model()))
            )
            rounded = opened.enter_context(contextlib.closing(kind.profiler(in_int8, names, content=quantized)))
        except EngineError as error:
            return {}, error.problem
        for _ in range(_WARM_UPS):
            exact.warm_up(canvases[0])
            rounded.warm_up(canvases[0])
        for run in range(TIMED_RUNS):
            exact.run(canvases[run % len(canvases)])
            rounded.run(canvases[run % len(canvases)])
            on_run()
        float_s, int8_s = exact.times(), rounded.times()
    both = float_s.keys() & int8_s.keys()
    return {name: LayerTimes(float_s=float_s[name], int8_s=int8_s[name]) for name in both}, None


def compared_layers(
    graph: Graph, spec: ModelSpec, quantized: QdqModel, copies: Mapping[str, str]
) -> tuple[ComparedLayer, ...]:
    """Return the weighted layers in the order of the model.

    `graph`: of the float model, with its shapes. `copies`: what the same layer in float on the same input is called in
    the INT8 model, by layer.
    """
    macs = {node.output: node.macs for node in cost_of_model(graph, spec).nodes}
    weighted = {*quantized.quantized_nodes, *quantized.float_nodes}
    return tuple(
        ComparedLayer(
            name=called(node),
            op_type=node.op_type,
            input_=_activation(node, graph),
            output=node.outputs[0],
            macs=macs.get(node.outputs[0], 0),
            quantization=_quantization(_activation(node, graph), node, quantized),
            float_copy=copies.get(called(node)),
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
    around = quantized.centres.get(read)
    step = float(scale_of(quantized.ranges[read] if around is None else around.range_))
    return Quantization(range_=max(quantized.ranges[read], LEVELS * step), step=step)


def watched_tensors(layers: Sequence[ComparedLayer]) -> tuple[str, ...]:
    """Return what the layers read and make, each once."""
    return tuple(dict.fromkeys(name for layer in layers for name in (layer.input_, layer.output)))


Tensors = Mapping[str, NDArray[np.float32]]


class Both(ByEngine):
    """The float model and the INT8 one as one `edge.protocols.Runner`: what is on a canvas goes through both.

    `names` are tensors of both, `inside` more of `quantized`.

    Tensors that are given out are not fused away, so that an engine computes the INT8 model in other steps than
    without, and some values fall to the other of two levels. Measured with OpenVINO 2026.4 on yolov5n and yolox_nano,
    the SQNR of the output moves by less than 0.1 dB, and the difference itself lies 9 to 18 dB below the error. Times
    are taken of models that give out nothing.
    """

    def __init__(
        self, kind: EngineKind, forms: Forms, quantized: bytes, names: Sequence[str], inside: Sequence[str]
    ) -> None:
        spec, rows = forms.spec, forms.spec.batch or 1
        exact, in_int8 = forms.float_model(), dataclasses.replace(spec, is_quantized=True)
        super().__init__(kind.activations(spec, names, max_batch=rows, content=exact))
        self._int8: ActivationEngine = kind.activations(in_int8, [*names, *inside], max_batch=rows, content=quantized)

    def start(self, index: int, count: int) -> None:
        self._int8.canvases[index][:] = self.canvases[index]
        super().start(index, count)
        self._int8.start(index, count)

    def wait(self, index: int) -> tuple[Tensors, Tensors]:
        """Return the tensors of the rows last started: in float, in INT8."""
        return self._engine.wait(index), self._int8.wait(index)

    def close(self) -> None:
        super().close()
        self._int8.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(StillsWork[Both, LayerErrors]):
    """The errors of the layers on each canvas."""

    layers: tuple[ComparedLayer, ...]
    with_copies: bytes  # the model in INT8 with its layers in float beside them

    def engine(self) -> Both:
        copies = tuple(layer.float_copy for layer in self.layers if layer.float_copy is not None)
        return Both(self.kind, self.forms, self.with_copies, watched_tensors(self.layers), inside=copies)

    def run(
        self, engine: Both, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[LayerErrors]:
        for placed, (exact, rounded) in run_stills([image.path for image in items], engine, read=read):
            yield self._errors(exact, rounded)
            for _ in placed:
                on_item()

    def _errors(self, exact: Tensors, rounded: Tensors) -> LayerErrors:
        errors = _none_yet(self.layers)
        for name, values in exact.items():
            errors.add(name, values, rounded[name])
        for layer in self.layers:
            if layer.float_copy is not None:
                errors.add(layer.float_copy, rounded[layer.float_copy], rounded[layer.output])
        return errors


def _none_yet(layers: Sequence[ComparedLayer]) -> LayerErrors:
    return LayerErrors({one.input_: one.quantization for one in layers if one.quantization is not None})


_TIMED_CANVASES = 4  # of the first images, to time both models with


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Inputs of a comparison; at most `limit` images are taken, by name."""

    model: Path
    table: Path
    images: Path
    limit: int | None = None
    is_skipping_undecodable: bool = False  # leave out files that cannot be decoded, instead of refusing them

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is a number of images, got {self.limit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of a comparison."""

    spec: ModelSpec
    table: Path
    images: int
    engine: str
    output_sqnr_db: float  # signal to noise of the model's output tensor
    layers: tuple[LayerError, ...]  # the weighted nodes, in the order of the model
    untimed: str | None = None  # why no layer was timed; None: they were, as far as each is known alone
    undecodable: tuple[Path, ...] = ()  # files that were left out

    def as_json(self) -> dict[str, Any]:
        """Give null where a value is not finite."""
        return {
            "model": self.spec.name,
            "table": str(self.table),
            "images": self.images,
            "engine": self.engine,
            "output_sqnr_db": round(self.output_sqnr_db, 3) if np.isfinite(self.output_sqnr_db) else None,
            "layers": [layer.as_json() for layer in self.layers],
        }


def images_to_compare(options: ComparisonOptions) -> list[Path]:
    """Raise `DatasetError` if there is none."""
    return list_images(options.images)[: options.limit]


def compare_model(
    options: ComparisonOptions,
    kind: EngineKind,
    *,
    on_step: Callable[[], None] = lambda: None,
    crew: Crew | None = None,
) -> Comparison:
    """`on_step`: called after each image, and after each of the TIMED_RUNS.
    `crew`: runs the images; None: this process. Times are those of this machine in any case.
    Raises `EdgeError` if model, table or images cannot be used; nothing has run then.
    """
    file, paths = read_model_file(options.model), images_to_compare(options)
    spec = inspect_file(file)
    forms = Forms(spec, usable_table(options.table, spec, file.graph), file=file)
    quantized = forms.qdq_model(QdqForm())
    resolved = resolved_for_one(file.graph, spec)
    with_copies, copies = with_float_copies(quantized, resolved)
    layers = compared_layers(resolved, spec, quantized, copies)
    seen, undecodable = each_decoded(
        paths, lambda picture: None, is_skipping_undecodable=options.is_skipping_undecodable
    )
    paths = list(seen)
    errors = _none_yet(layers)
    work = Comparing(kind=kind, forms=forms, max_batch=spec.batch or 1, layers=layers, with_copies=with_copies)
    with (crew or Here()).take_on(work) as job:
        for part in job.each([StillImage(path) for path in paths], on_item=on_step):
            errors.join(part)
        engine = job.engine
    times, untimed = times_of(
        kind, forms, quantized.model, layers, canvases=_first_canvases(paths, spec), on_run=on_step
    )
    macs = sum(layer.macs for layer in layers)
    return Comparison(
        spec=spec,
        table=options.table,
        images=len(paths),
        engine=engine,
        output_sqnr_db=errors.sqnr_db(spec.output_name),
        layers=tuple(errors.result(one, all_macs=macs, times=times.get(one.name)) for one in layers),
        untimed=untimed,
        undecodable=undecodable,
    )


def _first_canvases(paths: Sequence[Path], spec: ModelSpec) -> list[NDArray[np.uint8]]:
    """Return uint8 (batch of the model or 1, H, W, 3) of the first images, as often as need be."""
    rows = spec.batch or 1
    singles = list(still_canvases(paths[: _TIMED_CANVASES * rows], spec.preprocess))
    singles += singles * (-len(singles) % rows)
    return [np.stack(singles[first : first + rows]) for first in range(0, len(singles) // rows * rows, rows)]
