"""The same Q/DQ model with its INT8 computed in float, for a CPU on which OpenVINO does not compute it, or not exactly.

x86-64 without VNNI adds products of uint8 and int8 in pairs, in 16 bits (`vpmaddubsw`), and cuts off what does not fit:
without a warning OpenVINO loses 8 points of mAP50-95 of the demo's detector there (docs/adr/0009). Div, Round, Clip and
Mul make the same levels, and no backend takes them for a Q/DQ pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, node_proto
from edge.model.obstacles import QDQ_OPERATORS
from edge.model.opset import with_opset
from edge.model.qdq.stored import dequantized

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["with_float_arithmetic"]

_QUANTIZE, _DEQUANTIZE = QDQ_OPERATORS
_OPSET = 13  # the first whose Clip and Round take what is needed here, and whose pairs have an axis


def with_float_arithmetic(graph: Graph) -> bytes:
    """Return the model with stored weights in float and each pair of an activation as float operators.

    A pair whose scale is not one stored number stays as it is.

    Raises:
        ModelError: if a model of an operator set before 13 cannot be converted.
    """
    graph = with_opset(graph, _OPSET, "the Q/DQ model")
    editor = ModelEditor(graph)
    editor.store_inputs_apart()
    before: dict[int, list[NodeProto]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op_type != _DEQUANTIZE:
            continue
        stored, pair = dequantized(graph, node), _pair(graph, node)
        if stored is not None:
            name = editor.add_constant(f"{node.outputs[0]}/float", stored)
            editor.replace_node(position, node_proto("Identity", [name], list(node.outputs), name=node.name))
        elif pair is not None:
            before[position] = _levels(editor, pair)
            (level,) = before[position][-1].output
            last = node_proto("Mul", [level, node.inputs[1]], list(node.outputs), name=node.name)
            editor.replace_node(position, last)
    editor.insert_nodes(before)
    editor.forget_values()
    editor.sweep()
    return editor.to_bytes()


@dataclass(frozen=True, slots=True)
class _Pair:
    """A tensor, its one scale, and the lowest and the highest level less the zero point."""

    tensor: str
    scale: NDArray[Any]
    lowest: int
    highest: int


def _pair(graph: Graph, dequantize: Node) -> _Pair | None:
    """Return the pair that ends in `dequantize`, if both of its nodes have the same stored scale and zero point."""
    quantize = graph.producer(dequantize.inputs[0])
    if quantize is None or quantize.op_type != _QUANTIZE:
        return None
    numbers = _numbers(graph, quantize)
    if numbers is None or numbers != _numbers(graph, dequantize):
        return None
    scale, zero = numbers
    width = np.iinfo(zero.dtype)
    return _Pair(quantize.inputs[0], scale, width.min - int(zero), width.max - int(zero))


def _numbers(graph: Graph, node: Node) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return scale and zero point in their types; None if they are not one stored number each."""
    scale = graph.constant(node.inputs[1])
    zero = graph.constant(node.input(2)) if node.input(2) else np.zeros((), np.uint8)  # as ONNX has it
    if scale is None or zero is None or (scale.size, zero.size) != (1, 1):
        return None
    return scale.reshape(()), zero.reshape(())


def _levels(editor: ModelEditor, pair: _Pair) -> list[NodeProto]:
    """Return nodes that make the level of each value, less the zero point: clip(round(x / scale)), in float32."""
    name, inside = pair.tensor, pair.tensor
    nodes: list[NodeProto] = []

    def add(kind: str, word: str, *more: str, **attributes: str) -> None:
        nonlocal inside
        made = editor.unused_name(f"{name}/{word}")
        nodes.append(node_proto(kind, [inside, *more], [made], name=made, **attributes))
        inside = made

    def stored(word: str, value: Any) -> str:
        return editor.add_constant(f"{name}/{word}", np.array(value, np.float32))

    is_float16 = pair.scale.dtype == np.float16
    if is_float16:  # which would round quotients to other levels
        add("Cast", "wide", to="float32")
    add("Div", "divided", stored("step", pair.scale))
    add("Round", "rounded")
    add("Clip", "level", stored("lowest", pair.lowest), stored("highest", pair.highest))
    if is_float16:
        add("Cast", "narrow", to="float16")
    return nodes
