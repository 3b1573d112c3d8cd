"""A Q/DQ model back into ranges and a float model: ours, ONNX Runtime's and NVIDIA's placement.

Pairs are taken out and their scales become ranges; of several pairs on one tensor the largest counts. Stored int8
weights and int32 biases become float again. An asymmetric range (uint8) becomes the symmetric one that holds it.
"""

from __future__ import annotations

from pathlib import Path

from edge.errors import ModelError
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, load_graph, node_proto
from edge.model.obstacles import INTEGER_OPERATORS, QDQ_OPERATORS
from edge.model.qdq.placement import WEIGHTED, called, place
from edge.model.qdq.scales import LEVELS
from edge.model.qdq.share import is_dequantized
from edge.model.qdq.stored import dequantized

__all__ = ["read_qdq"]

_QUANTIZE, _DEQUANTIZE = QDQ_OPERATORS
_WIDTHS = {"int8": (-128, 127), "uint8": (0, 255)}
# What ends in a range that starts at 0 without being cut off there: behind all others, a Relu was left out.
_CLIPPED_BY_RANGE = frozenset(("Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul"))


def read_qdq(path: Path) -> tuple[dict[str, float], bytes, tuple[str, ...]]:
    """Return the ranges that the Q/DQ model at `path` carries, its float model, and what it keeps in float.

    The three are what `insert_qdq` takes.

    Raises:
        ModelError: if the model carries no Q/DQ pairs, has integer operators, or quantizes to something else than int8.
    """
    graph = load_graph(path)
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
    if _QUANTIZE not in kinds:
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
        if (
            quantize is not None
            and quantize.op_type == _QUANTIZE
            and self._graph.constant(quantize.inputs[0]) is not None
        ):
            return quantize.inputs[0]  # stored in float, with a pair
        restored = dequantized(self._graph, node)
        if restored is None:
            raise self._refusal(node, "stored scales, and weights in int8, uint8 or int32")
        return self.editor.add_constant(f"{node.outputs[0]}/float", restored)

    def _activation(self, position: int, node: Node, quantize: Node) -> str:
        name = self._instead.get(quantize.inputs[0], quantize.inputs[0])
        low, high = self._bounds(quantize)
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

    def _bounds(self, node: Node) -> tuple[float, float]:
        """Return the smallest and the largest value that the pair lets through."""
        scale, zero = (self._graph.constant(name) if name else None for name in _operands(node)[1:])
        if scale is None or scale.size != 1:
            raise self._refusal(node, "one stored scale for an activation")
        kind = "uint8" if zero is None else str(zero.dtype)  # what ONNX says of a missing zero point
        if kind not in _WIDTHS:
            raise self._refusal(node, f"int8 or uint8, got {kind}")
        offset = 0 if zero is None else int(zero.reshape(-1)[0])
        lowest, highest = (end - offset for end in _WIDTHS[kind])
        if (lowest, highest) == (-LEVELS - 1, LEVELS):
            lowest = -LEVELS
        step = float(scale.reshape(-1)[0])
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
            return not all(is_dequantized(self._graph, name) for name in node.inputs[:2])
        return called(node) in residual and not any(is_dequantized(self._graph, name) for name in node.inputs)

    def _refusal(self, node: Node, expected: str) -> ModelError:
        return ModelError(
            f"{self._path}: {node.op_type} {called(node)}: expected {expected}",
            hint="start from the float model, or quantize it again to int8 with Q/DQ pairs",
        )


def _operands(node: Node) -> tuple[str, str, str]:
    return node.input(0), node.input(1), node.input(2)
