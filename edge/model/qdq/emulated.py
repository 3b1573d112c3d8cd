"""The same Q/DQ model with its INT8 computed in float, for a CPU on which OpenVINO does not compute it, or not exactly.

x86-64 without VNNI adds products of uint8 and int8 in pairs, in 16 bits (`vpmaddubsw`), and cuts off what does not fit:
without a warning OpenVINO loses 8 points of mAP50-95 of the demo's detector there (docs/adr/0006). Div, Round, Clip and
Mul make the same levels, and no backend takes them for a Q/DQ pair. `with_float_copies` has both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, graph_from_bytes, node_proto
from edge.model.node import QDQ_OPERATORS
from edge.model.opset import with_opset
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.placement import called
from edge.model.qdq.read import dequantized, scaling_of

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["with_float_arithmetic", "with_float_copies"]

_QUANTIZE, _DEQUANTIZE = QDQ_OPERATORS
_OPSET = 13  # the first whose Clip and Round take what is needed here, and whose pairs have an axis


def with_float_arithmetic(graph: Graph) -> bytes:
    """Return the model with stored weights in float and each pair of an activation as float operators.

    A pair whose scale is not one stored number stays as it is.
    Raises `ModelError` if a model of an operator set before 13 cannot be converted.
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
    scaling = scaling_of(graph, dequantize)
    if scaling.scale is None or not scaling.is_single or not scaling.is_inverse_of(scaling_of(graph, quantize)):
        return None
    width, zero = np.iinfo(scaling.kind), int(scaling.offset[0])
    return _Pair(quantize.inputs[0], scaling.scale.reshape(()), width.min - zero, width.max - zero)


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


def with_float_copies(quantized: QdqModel, resolved: Graph) -> tuple[bytes, dict[str, str]]:
    """Return a Q/DQ model that also computes its nodes in INT8 in float, and what the results are called, by node.

    A copy reads the activation in front of its Q/DQ pair, and the weight as it was; its result is a further output.
    Every tensor holds what it holds in the float model again, also where pairs stand around a centre. `quantized`: what
    `insert_qdq` made of a float model. `resolved`: that float model, with the shapes that can be inferred.
    """
    graph = graph_from_bytes(quantized.model, "Q/DQ model")
    editor, copies = ModelEditor(graph), dict[str, str]()
    made = [_raised(editor, name, quantized.centres[name].value) for name in quantized.lowered]
    stored: dict[str, str] = {}
    for node in (node for node in resolved.nodes if called(node) in quantized.quantized_nodes):
        read = [_source(editor, graph, resolved, name, stored) for name in node.inputs]
        output = copies[called(node)] = editor.unused_name(f"{node.outputs[0]}/float")
        made.append(node_proto(node.op_type, read, [output], name=editor.unused_name(output), **node.attributes))
        editor.add_output(output, rank=len(resolved.shape(node.outputs[0]) or ()))
    editor.insert_nodes({len(graph.nodes): made})
    return editor.to_bytes(), copies


def _raised(editor: ModelEditor, name: str, centre: float) -> NodeProto:
    """Return a node that makes `name` what it is in the float model, for the copies and for inner tensors."""
    lowered = editor.unused_name(f"{name}/lowered")
    editor.rename(name, lowered)
    value = editor.add_constant(f"{name}/centre", np.array(centre, np.float32))
    return node_proto("Add", [lowered, value], [name], name=editor.unused_name(f"{name}/raised"))


def _source(editor: ModelEditor, graph: Graph, exact: Graph, name: str, stored: dict[str, str]) -> str:
    """Return where the Q/DQ model has what is called `name` in the float one; stored there again if it was dropped."""
    value = None if not name or exact.is_varying(name) else exact.constant(name)
    if value is None or graph.initializer_shape(name) is not None:
        return name
    if name not in stored:
        stored[name] = editor.add_constant(f"{name}/float", value)
    return stored[name]
