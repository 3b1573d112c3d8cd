"""A Q/DQ model back into ranges and a float model: ours, ONNX Runtime's and NVIDIA's placement.

Pairs are taken out and their scales become ranges; of several pairs on one tensor the largest counts. Stored int8
weights and int32 biases become float again, also whole numbers that are stored as floats in front of a pair whose Q has
another scale than its DQ. An asymmetric range (uint8) becomes the symmetric one that holds it. `Scaling`: the scales of
one QuantizeLinear or DequantizeLinear as the file has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.cost import mac_share
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, load_graph, node_proto
from edge.model.node import INTEGER_OPERATORS, QDQ_OPERATORS
from edge.model.qdq.placement import WEIGHTED, called, is_moving, place
from edge.model.qdq.scales import LEVELS
from edge.types import ModelSpec

__all__ = [
    "INTEGERS",
    "Scaling",
    "dequantized",
    "int8_mac_share",
    "is_computed_in_int8",
    "is_dequantized",
    "read_qdq",
    "restored",
    "rounded",
    "scaling_of",
    "with_uint8_activations",
]

_QUANTIZE, _DEQUANTIZE = QDQ_OPERATORS
INTEGERS = {"int8": (-128, 127), "uint8": (0, 255)}
_SAME = 1e-4
_STATED = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}  # of ONNX's TensorProto.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How a node rounds or restores."""

    scale: NDArray[Any] | None  # None: it is not stored
    zero: NDArray[Any] | None  # None: 0
    axis: int  # of the channels, where there is more than one scale; negative ones count from the end
    kind: str  # of the integers, as numpy names them
    is_implied: bool  # nothing states that type, ONNX says what it is then
    is_blocked: bool  # several scales lie along one axis of a channel

    @property
    def is_single(self) -> bool:
        """Whether one scale is for all values."""
        return self.scale is None or self.scale.size == 1

    @property
    def is_positive(self) -> bool:
        """Whether the scales are stored, finite and above 0."""
        return self.scale is not None and bool((np.isfinite(self.scale) & (self.scale > 0)).all())

    @property
    def offset(self) -> NDArray[np.int64]:
        """The zero point, one or one for each channel."""
        return np.zeros(1, np.int64) if self.zero is None else self.zero.astype(np.int64).reshape(-1)

    def is_inverse_of(self, other: Scaling) -> bool:
        """Whether one gives back what the other has rounded: the same type, scales and zero points."""
        if self.scale is None or other.scale is None or (self.kind, self.scale.size) != (other.kind, other.scale.size):
            return False
        return (
            np.allclose(self.scale.reshape(-1), other.scale.reshape(-1), rtol=_SAME, atol=0)
            and bool((self.offset == other.offset).all())
            and (self.is_single or self.axis == other.axis)
        )


def scaling_of(graph: Graph, node: Node) -> Scaling:
    """Return the scales of `node`, a QuantizeLinear or DequantizeLinear."""
    scale, zero = (graph.constant(name) if name else None for name in (node.input(1), node.input(2)))
    kind, is_implied = _kind(graph, node, zero)
    return Scaling(
        scale=scale,
        zero=zero,
        axis=int(node.attributes.get("axis", 1)),
        kind=kind,
        is_implied=is_implied,
        is_blocked=bool(node.attributes.get("block_size", 0)) or (scale is not None and scale.ndim > 1 < scale.size),
    )


def dequantized(graph: Graph, node: Node) -> NDArray[Any] | None:
    """Return the values that `node`, a DequantizeLinear, makes of what is stored, in the type of its scales.

    None if the values are not stored or no int8, uint8 or int32, or as `restored`.
    """
    values = graph.constant(node.inputs[0])
    if values is None or str(values.dtype) not in (*INTEGERS, "int32"):
        return None
    return restored(values, scaling_of(graph, node))


def rounded(values: NDArray[Any], scaling: Scaling) -> tuple[NDArray[Any], float] | None:
    """Return the integers that a QuantizeLinear makes of stored values, and by how many levels it moves one at most.

    None as `restored`, or if they are of another width than 8 bit.
    """
    spread = _spread(values, scaling)
    if spread is None or scaling.kind not in INTEGERS:
        return None
    exact = values.astype(np.float64) / spread[0] + spread[1]
    levels = np.clip(np.rint(exact), *INTEGERS[scaling.kind])
    return levels, float(np.abs(exact - levels).max(initial=0.0))


def restored(values: NDArray[Any], scaling: Scaling) -> NDArray[Any] | None:
    """Return what a DequantizeLinear makes of integers, in the type of its scales.

    None if these are not stored, are of blocks, or of another number of channels.
    """
    spread = _spread(values, scaling)
    if spread is None or scaling.scale is None:
        return None
    return np.asarray((values.astype(np.int64) - spread[1]) * spread[0], scaling.scale.dtype)


def _spread(values: NDArray[Any], scaling: Scaling) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    if scaling.scale is None or scaling.is_blocked:
        return None
    shape = [1] * values.ndim
    if not scaling.is_single:
        if not -values.ndim <= scaling.axis < values.ndim or values.shape[scaling.axis] != scaling.scale.size:
            return None
        shape[scaling.axis] = -1
    zero = scaling.offset
    if zero.size not in (1, scaling.scale.size):
        return None
    return scaling.scale.reshape(shape), zero.reshape(shape if zero.size > 1 else [1] * values.ndim)


def _kind(graph: Graph, node: Node, zero: NDArray[Any] | None) -> tuple[str, bool]:
    if zero is not None:
        return str(zero.dtype), False
    if node.op_type == _QUANTIZE:
        stated = int(node.attributes.get("output_dtype", 0))
        return (_STATED.get(stated, f"type {stated} of ONNX"), False) if stated else ("uint8", True)
    maker = graph.producer(node.inputs[0])
    if maker is not None and maker.op_type == _QUANTIZE:
        return _kind(graph, maker, graph.constant(maker.input(2)) if maker.input(2) else None)
    stored = graph.constant(node.inputs[0])
    return ("int8", True) if stored is None else (str(stored.dtype), False)


_MIDDLE = 128


def with_uint8_activations(graph: Graph) -> bytes:
    """Return the model with each symmetric int8 activation as uint8 with zero point 128: the same values exactly."""
    editor = ModelEditor(graph)
    moved = {node.outputs[0] for node in graph.nodes if node.op_type == _QUANTIZE and _is_signed(graph, node)}
    for position, node in enumerate(graph.nodes):
        reads_moved = node.op_type == _DEQUANTIZE and node.inputs[0] in moved
        if moved.intersection(node.outputs) or reads_moved:
            shape = np.asarray(scaling_of(graph, node).scale).shape
            editor.set_constant_input(position, 2, np.full(shape, _MIDDLE, np.uint8))
            editor.set_attributes(position, {k: v for k, v in node.attributes.items() if k != "output_dtype"})
    editor.sweep()
    return editor.to_bytes()


def _is_signed(graph: Graph, node: Node) -> bool:
    """Return whether `node` makes int8 with zero point 0 for DequantizeLinear alone."""
    scaling = scaling_of(graph, node)
    readers = graph.consumers(node.outputs[0])
    return (
        graph.is_varying(node.inputs[0])
        and scaling.scale is not None
        and scaling.is_single
        and scaling.kind == "int8"
        and not scaling.offset.any()
        and all(reader.op_type == _DEQUANTIZE for reader in readers)
    )


_RESHAPING = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


def int8_mac_share(graph: Graph, spec: ModelSpec) -> float:
    """Return the multiply-accumulates whose both operands are dequantized, of all; 0 for a float model.

    `graph`: the inside of the model that runs.
    """
    return mac_share(graph, spec, (node for node in graph.nodes if is_computed_in_int8(graph, node)))


def is_dequantized(graph: Graph, tensor: str) -> bool:
    """Return whether a DequantizeLinear makes `tensor`, with nothing behind it but moving of values."""
    node = graph.producer(tensor)
    if node is None or node.op_type == _DEQUANTIZE:
        return node is not None
    if not (is_moving(node) or node.op_type in _RESHAPING):
        return False
    return all(is_dequantized(graph, source) for source in node.inputs if graph.is_varying(source))


def is_computed_in_int8(graph: Graph, node: Node) -> bool:
    """Return whether `node` multiplies two dequantized operands."""
    return node.op_type in WEIGHTED and all(is_dequantized(graph, name) for name in node.inputs[:2])


_SCALES_PER_CHANNEL_OPSET = 13
_WHOLE = 1e-3  # of a level: weights that are whole numbers are this near to them
# What ends in a range that starts at 0 without being cut off there: behind all others, a Relu was left out.
_CLIPPED_BY_RANGE = frozenset(("Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul"))


def read_qdq(path: Path, graph: Graph | None = None) -> tuple[dict[str, float], bytes, tuple[str, ...]]:
    """Return the ranges that the Q/DQ model at `path` carries, its float model, and what it keeps in float.

    The three are what `insert_qdq` takes. `graph` is the inside of the file; None: it is read.
    Raises ModelError if the model carries no Q/DQ pairs, has integer operators, quantizes to something else than 8 bit,
    or has pairs that contradict themselves.
    """
    graph = load_graph(path) if graph is None else graph
    _require_pairs(graph, path)
    reader = _Reader(graph, path)
    reader.take_out()
    return reader.ranges, reader.editor.to_bytes(), reader.kept()


def _require_pairs(graph: Graph, path: Path) -> None:
    kinds = {node.op_type for node in graph.nodes}
    found = sorted(kind for kind in kinds if kind in INTEGER_OPERATORS or kind.startswith("QLinear"))
    if found:
        raise ModelError(
            f"{path}: expected Q/DQ pairs around float operators, got integer operators: {', '.join(found)}",
            hint="quantize it again with Q/DQ nodes (ONNX Runtime: quant_format=QuantFormat.QDQ)",
        )
    if kinds.isdisjoint(QDQ_OPERATORS):
        raise ModelError(f"{path}: expected Q/DQ nodes, got a float model", hint="calibrate it instead")


class _Reader:
    """Takes pairs out of a copy of a graph, collecting their ranges."""

    def __init__(self, graph: Graph, path: Path) -> None:
        self._graph = graph
        self._path = path
        self.editor = ModelEditor(graph)
        self.ranges: dict[str, float] = {}
        self._instead: dict[str, str] = {}

    def take_out(self) -> None:
        self.editor.store_inputs_apart()
        for position, node in enumerate(self._graph.nodes):
            if node.op_type == _DEQUANTIZE:
                self._instead[node.outputs[0]] = self._original(position, node)
            elif node.op_type == _QUANTIZE:
                self._require_dequantized(node)
        self._rewire()
        self.editor.sweep()

    def _original(self, position: int, node: Node) -> str:
        """Return the tensor that stands for what `node` dequantizes."""
        quantize = self._graph.producer(node.inputs[0])
        if quantize is None or not self._graph.is_varying(node.inputs[0]):
            return self._weight(node, quantize)
        if quantize.op_type != _QUANTIZE:
            raise self._refusal(node, f"a QuantizeLinear in front of it, got {quantize.op_type}")
        return self._activation(position, node, quantize)

    def _weight(self, node: Node, quantize: Node | None) -> str:
        scaling = self._sound(node)
        if quantize is None or quantize.op_type != _QUANTIZE:
            values = dequantized(self._graph, node)
        elif scaling.is_inverse_of(self._sound(quantize)):
            return quantize.inputs[0]
        else:
            values = self._whole(node, quantize, scaling)
        if values is None:
            raise self._refusal(node, "stored weights in int8, uint8 or int32, with a scale for each channel or one")
        return self.editor.add_constant(f"{node.outputs[0]}/float", values)

    def _whole(self, node: Node, quantize: Node, scaling: Scaling) -> NDArray[Any] | None:
        """Return the weight of integers that are stored as floats: Q only changes their type, DQ has the scale."""
        stored, there = self._graph.constant(quantize.inputs[0]), scaling_of(self._graph, quantize)
        levels = None if stored is None else rounded(stored, there)
        is_same_kind = there.kind == scaling.kind and bool((there.offset == scaling.offset).all())
        if levels is None or levels[1] > _WHOLE or not is_same_kind:
            raise self._refusal(
                node, f"the scales and zero points of {called(quantize)} in front of it, or whole numbers to restore"
            )
        return restored(levels[0], scaling)

    def _sound(self, node: Node) -> Scaling:
        """Refuse a node whose scales cannot be read."""
        scaling = scaling_of(self._graph, node)
        if not scaling.is_positive:
            raise self._refusal(node, "stored scales, finite and above 0")
        if scaling.is_blocked or (not scaling.is_single and self._graph.opset < _SCALES_PER_CHANNEL_OPSET):
            raise self._refusal(node, f"one scale, or from opset {_SCALES_PER_CHANNEL_OPSET} on one for each channel")
        return scaling

    def _activation(self, position: int, node: Node, quantize: Node) -> str:
        name = self._instead.get(quantize.inputs[0], quantize.inputs[0])
        scaling = self._sound(quantize)
        if not self._sound(node).is_inverse_of(scaling):
            raise self._refusal(node, f"the scale and the zero point of {called(quantize)} in front of it")
        low, high = self._bounds(quantize, scaling)
        amax = max(-low, high)
        self.ranges[name] = max(amax, self.ranges.get(name, 0.0))
        maker = self._graph.producer(name)
        if low == 0 and maker is not None and maker.op_type in _CLIPPED_BY_RANGE:
            return self._relu(position, name)
        return name

    def _relu(self, position: int, name: str) -> str:
        """Put the Relu back that a tool left out because the range cuts off at 0 as well."""
        made = self.editor.unused_name(f"{name}/relu")
        self.editor.replace_node(position, node_proto("Relu", [name], [made], name=made))
        self.ranges[made] = self.ranges.pop(name)
        return made

    def _bounds(self, node: Node, scaling: Scaling) -> tuple[float, float]:
        """Return the smallest and the largest value that the pair lets through."""
        if scaling.scale is None or not scaling.is_single:
            raise self._refusal(node, "one stored scale for an activation")
        if scaling.kind not in INTEGERS:
            raise self._refusal(node, f"int8 or uint8, got {scaling.kind}")
        lowest, highest = (end - int(scaling.offset[0]) for end in INTEGERS[scaling.kind])
        if (lowest, highest) == (-LEVELS - 1, LEVELS):
            lowest = -LEVELS
        step = float(scaling.scale.reshape(-1)[0])
        return lowest * step, highest * step

    def _require_dequantized(self, node: Node) -> None:
        readers = self._graph.consumers(node.outputs[0])
        others = [reader.op_type for reader in readers if reader.op_type != _DEQUANTIZE]
        if others:
            raise self._refusal(node, f"a DequantizeLinear behind it, got {others[0]}")

    def _rewire(self) -> None:
        for position, node in enumerate(self._graph.nodes):
            for index, name in enumerate(node.inputs):
                if name in self._instead and node.op_type not in QDQ_OPERATORS:
                    self.editor.set_input(position, index, self._instead[name])
        for info in self._graph.outputs:
            if info.name in self._instead:
                inner = self._instead[info.name]
                self.editor.rename(inner, info.name)
                if inner in self.ranges:
                    self.ranges[info.name] = self.ranges.pop(inner)

    def kept(self) -> tuple[str, ...]:
        """Return the weighted nodes and residual Adds that do not read INT8."""
        placement = place(self.editor.graph())
        residual = {called(node) for node in placement.residual}
        return tuple(called(node) for node in self._graph.nodes if self._is_float(node, residual))

    def _is_float(self, node: Node, residual: set[str]) -> bool:
        if node.op_type in WEIGHTED:
            return not is_computed_in_int8(self._graph, node)
        return called(node) in residual and not any(is_dequantized(self._graph, name) for name in node.inputs)

    def _refusal(self, node: Node, expected: str) -> ModelError:
        return ModelError(
            f"{self._path}: {node.op_type} {called(node)}: expected {expected}",
            hint="start from the float model, or quantize it again to int8 with Q/DQ pairs",
        )
