"""The same Q/DQ model with its INT8 computed in float, for a CPU whose INT8 sums saturate.

x86-64 without VNNI adds products of uint8 and int8 in pairs, in 16 bits (`vpmaddubsw`), and cuts off what does not fit:
without a warning OpenVINO loses 8 points of mAP50-95 of the demo's detector there (docs/adr/0009). Div, Round, Clip and
Mul make the same levels, and no backend takes them for a Q/DQ pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edge.model.draft import Draft
from edge.model.graph import Graph, Node, node_proto
from edge.model.obstacles import QDQ_OPERATORS
from edge.model.opset import with_opset
from edge.model.qdq.stored import dequantized

if TYPE_CHECKING:
    from edge.model.graph import NodeProto

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
    draft = Draft(graph)
    draft.store_inputs_apart()
    before: dict[int, list[NodeProto]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op_type != _DEQUANTIZE:
            continue
        stored, pair = dequantized(graph, node), _pair(graph, node)
        if stored is not None:
            name = draft.add_constant(f"{node.outputs[0]}/float", stored)
            draft.replace_node(position, node_proto("Identity", [name], list(node.outputs), name=node.name))
        elif pair is not None:
            before[position] = _levels(draft, pair)
            (level,) = before[position][-1].output
            last = node_proto("Mul", [level, node.inputs[1]], list(node.outputs), name=node.name)
            draft.replace_node(position, last)
    draft.insert_nodes(before)
    draft.forget_values()
    draft.sweep()
    return draft.to_bytes()


@dataclass(frozen=True, slots=True)
class _Pair:
    """A tensor, the name of its scale, and the lowest and the highest level less the zero point."""

    tensor: str
    scale: str
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
    _, zero, width = numbers
    return _Pair(quantize.inputs[0], quantize.inputs[1], np.iinfo(width).min - zero, np.iinfo(width).max - zero)


def _numbers(graph: Graph, node: Node) -> tuple[float, int, np.dtype[Any]] | None:
    """Return scale, zero point and type of the levels; None if they are not one stored number each."""
    scale = graph.constant(node.inputs[1])
    zero = graph.constant(node.input(2)) if node.input(2) else np.zeros((), np.uint8)  # as ONNX has it
    if scale is None or zero is None or (scale.size, zero.size) != (1, 1):
        return None
    return scale.item(), zero.item(), zero.dtype


def _levels(draft: Draft, pair: _Pair) -> list[NodeProto]:
    """Return nodes that make the level of each value, less the zero point: clip(round(x / scale))."""
    divided, rounded, level = (draft.unused_name(f"{pair.tensor}/{word}") for word in ("divided", "rounded", "level"))
    ends = [
        draft.add_constant(f"{pair.tensor}/{word}", np.array(end, np.float32))
        for word, end in (("lowest", pair.lowest), ("highest", pair.highest))
    ]
    return [
        node_proto("Div", [pair.tensor, pair.scale], [divided], name=divided),
        node_proto("Round", [divided], [rounded], name=rounded),
        node_proto("Clip", [rounded, *ends], [level], name=level),
    ]
