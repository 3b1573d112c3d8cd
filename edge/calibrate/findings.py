"""Findings of lint that need the table alone, and what else it is compared with: tensors of a model, its input."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edge.calibrate.table import CalibrationTable
from edge.model.graph import Graph, Node, load_graph
from edge.model.qdq.placement import called
from edge.types import ModelSpec, Preprocess

__all__ = [
    "Finding",
    "ModelFacts",
    "Severity",
    "facts_of_graph",
    "facts_of_model",
    "largest_input",
    "lint_ranges",
    "named",
]

_WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
_COMPARING = ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
_NOT_FLOAT = frozenset((*_COMPARING, "ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Shape", "Size"))
_INDEX_SECOND = ("TopK", "MaxPool", "Dropout")  # whose second output is indices or a mask
_FLOAT_TYPES = (1, 10, 11, 16)  # of ONNX's Cast: float32, float16, float64, bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model as lint sees it."""

    name: str
    sha256: str
    preprocess: Preprocess
    graph: Graph
    input_name: str
    activations: tuple[str, ...]  # float tensors that depend on the pixels, in the order of the graph, the input first
    tensors: frozenset[str]  # all names, of constants and integers too
    weighted_outputs: tuple[str, ...]  # of the convolutions and matrix products
    # outputs of sigmoids behind the last convolutions, which are near 1 where an object was seen
    scores: tuple[str, ...]
    node_names: frozenset[str]  # all of them; a node without one is called by its first output


def facts_of_model(spec: ModelSpec) -> ModelFacts:
    """Raise `ModelError` if the file can no longer be read."""
    return facts_of_graph(load_graph(spec.path), spec)


def facts_of_graph(graph: Graph, spec: ModelSpec) -> ModelFacts:
    return ModelFacts(
        name=spec.name,
        sha256=spec.sha256,
        preprocess=spec.preprocess,
        graph=graph,
        input_name=spec.input_name,
        activations=(spec.input_name, *_float_tensors(graph)),
        tensors=frozenset(name for node in graph.nodes for name in (*node.inputs, *node.outputs)),
        weighted_outputs=tuple(node.outputs[0] for node in graph.nodes if node.op_type in _WEIGHTED),
        scores=tuple(dict.fromkeys(_scores(graph, spec.output_name))),
        node_names=frozenset(called(node) for node in graph.nodes),
    )


def largest_input(preprocess: Preprocess) -> float:
    """Return the largest |x| that a pixel can become."""
    ends = (
        abs(value * preprocess.scale - mean) / std
        for value in (0, 255)
        for mean, std in zip(preprocess.mean, preprocess.std, strict=True)
    )
    return max(ends)


def _float_tensors(graph: Graph) -> Iterator[str]:
    """Yield what nodes make of the pixels, other than integers (indices, of which end-to-end heads are full)."""
    integers: set[str] = set()
    for node in graph.nodes:
        for position, name in enumerate(node.outputs):
            if not name or not graph.is_varying(name):
                continue
            if _is_integer(node, position, [input_ in integers for input_ in _data(node) if graph.is_varying(input_)]):
                integers.add(name)
            else:
                yield name


def _is_integer(node: Node, position: int, are_integers: list[bool]) -> bool:
    if node.op_type == "Cast":
        return node.attributes["to"] not in _FLOAT_TYPES
    if node.op_type in _NOT_FLOAT or (position > 0 and node.op_type in _INDEX_SECOND):
        return True
    return bool(are_integers) and are_integers[0]


def _data(node: Node) -> tuple[str, ...]:
    if node.op_type == "Where":
        return node.inputs[1:]
    return node.inputs[:1] if node.op_type.startswith("Gather") else node.inputs


def _scores(graph: Graph, output: str) -> Iterator[str]:
    seen, waiting = set(), [output]
    while waiting:
        tensor = waiting.pop()
        node = graph.producer(tensor)
        if node is None or tensor in seen or node.op_type in _WEIGHTED:
            continue
        seen.add(tensor)
        if node.op_type == "Sigmoid":
            yield tensor
        waiting.extend(node.inputs)


_SHOWN = 4


class Severity(str, enum.Enum):
    """An error makes INT8 wrong; a warning may be meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`code` is stable, for programs; `tensors` are all that it is about."""

    severity: Severity
    code: str
    problem: str
    fix: str
    tensors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.code}: {self.problem}; {self.fix}"

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def error(code: str, problem: str, fix: str, tensors: Sequence[str] = ()) -> Finding:
    return Finding(severity=Severity.ERROR, code=code, problem=problem, fix=fix, tensors=tuple(tensors))


def warning(code: str, problem: str, fix: str, tensors: Sequence[str] = ()) -> Finding:
    return Finding(severity=Severity.WARNING, code=code, problem=problem, fix=fix, tensors=tuple(tensors))


def named(tensors: Sequence[str]) -> str:
    """Return the first of `tensors` in quotes, and how many more there are."""
    shown = ", ".join(f'"{name}"' for name in tensors[:_SHOWN])
    more = len(tensors) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


_LARGEST_FLOAT16 = 65504.0
_SMALLEST_FLOAT16 = 2.0**-24  # TensorRT's calibrators write 2^-23 for what was always zero
_ZERO = "zero"
_FEW = 8  # tensors: below, equal ranges say nothing
_EQUAL_SHARE = 0.6


def lint_ranges(table: CalibrationTable, facts: ModelFacts | None) -> Iterator[Finding]:
    """Yield what is wrong with the ranges themselves.

    `facts`: of the model; None leaves out what cannot be known then. TensorRT writes 0 for constants, too, and what is
    next to nothing may be one: both are wrong only where the model computes that tensor.
    """
    computed = frozenset(table.tensors if facts is None else facts.activations)
    yield from _unusable(table, computed, is_model_known=facts is not None)
    yield from _tiny(table, computed)
    yield from _placeholders(table)
    yield from _means(table)
    large = [name for name, tensor in table.tensors.items() if _LARGEST_FLOAT16 < tensor.amax < math.inf]
    if large:
        yield warning(
            "beyond-float16",
            f"{named(large)}: ranges above {_LARGEST_FLOAT16:.0f} overflow where a layer falls back to float16",
            "look at the layer in front, and keep it in float32",
            large,
        )


def _unusable(table: CalibrationTable, computed: Collection[str], *, is_model_known: bool) -> Iterator[Finding]:
    if not table.tensors:
        yield error("empty", "the table has no tensor", "calibrate or import again")
    kinds: dict[str, list[str]] = {}
    for name, tensor in table.tensors.items():
        kind = _kind(tensor.scale.value)
        if not tensor.is_usable and (kind != _ZERO or name in computed):
            kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        problem, fix = _REASONS[kind]
        is_open = kind == _ZERO and not is_model_known and table.imported is not None
        if is_open:
            problem, fix = _OPEN_ZERO
        yield (warning if is_open else error)(f"{kind}-scale", f"{named(names)}: {problem}", fix, names)


def _tiny(table: CalibrationTable, computed: Collection[str]) -> Iterator[Finding]:
    ranges = {name: one.amax for name, one in table.tensors.items() if name in computed and one.is_usable}
    tiny = {name: amax for name, amax in ranges.items() if amax < _SMALLEST_FLOAT16}
    if tiny:
        smallest = min(tiny.values())
        yield error(
            "tiny-scale",
            f"{named(list(tiny))}: range {smallest:.3g} is less than the smallest float16, "
            f"{_SMALLEST_FLOAT16:.3g}; no activation is that small, and every larger value would be clipped to it",
            "digits were lost on the way, or the tensor was zero: copy or calibrate again, or remove it from the "
            "table, which keeps it in float",
            list(tiny),
        )


def _means(table: CalibrationTable) -> Iterator[Finding]:
    wrong = [name for name, tensor in table.tensors.items() if not all(map(math.isfinite, tensor.means))]
    if wrong:
        yield error(
            "means",
            f"{named(wrong)}: means of channels that are no finite numbers make biases that are none",
            "calibrate again, or remove the means",
            wrong,
        )


def _kind(scale: float) -> str:
    if math.isnan(scale):
        return "nan"
    if math.isinf(scale):
        return "infinite"
    return "negative" if scale < 0 else _ZERO


_OPEN_ZERO = (
    "the scale is 0; TensorRT writes that for constants, which do not matter, and for what was always zero, which does",
    "say with --model which model it is of: only what that one computes counts",
)
_REASONS = {
    _ZERO: (
        "the scale is 0, so every value would become 0; the tensor was zero in all calibration images",
        "calibrate with more images, or remove it from the table, which keeps it in float",
    ),
    "infinite": (
        "the scale is infinite; the float model overflowed while it was calibrated",
        "calibrate in float32, not float16, or remove it from the table, which keeps it in float",
    ),
    "nan": (
        "the scale is not a number; the calibration was broken",
        "calibrate again in float32; an image or the model gives NaN",
    ),
    "negative": (
        "the scale is negative; the largest value was taken where the largest absolute value is meant",
        "calibrate again; some writers confuse the two (see calib_cache/README.md)",
    ),
}


def _placeholders(table: CalibrationTable) -> Iterator[Finding]:
    usable = [tensor.amax for tensor in table.tensors.values() if tensor.is_usable]
    if len(usable) < _FEW:
        return
    amax, times = Counter(usable).most_common(1)[0]
    if times >= _EQUAL_SHARE * len(usable):
        yield error(
            "placeholder-ranges",
            f"{times} of {len(usable)} tensors have the same range {amax:.6g}: they were not measured",
            "calibrate with real images; tools that only time engines fill in constants",
        )
