"""How much of a Q/DQ model, of whatever origin, is computed in INT8."""

from __future__ import annotations

from edge.model.cost import cost_for_one
from edge.model.graph import Graph, Node
from edge.model.obstacles import QDQ_OPERATORS
from edge.model.qdq.placement import WEIGHTED, is_moving
from edge.types import ModelSpec

__all__ = ["int8_mac_share", "is_dequantized"]

_DEQUANTIZE = QDQ_OPERATORS[1]
_RESHAPING = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


def int8_mac_share(graph: Graph, spec: ModelSpec) -> float:
    """Return the multiply-accumulates whose both operands are dequantized, of all; 0 for a float model.

    Args:
        graph: the inside of the model that runs.
        spec: what it is.
    """
    cost = cost_for_one(graph, spec)
    quantized = {node.outputs[0] for node in graph.nodes if _is_quantized(graph, node)}
    return sum(node.macs for node in cost.nodes if node.output in quantized) / max(1, cost.macs)


def is_dequantized(graph: Graph, tensor: str) -> bool:
    """Return whether a DequantizeLinear makes `tensor`, with nothing behind it but moving of values."""
    node = graph.producer(tensor)
    if node is None or node.op_type == _DEQUANTIZE:
        return node is not None
    if not (is_moving(node) or node.op_type in _RESHAPING):
        return False
    return all(is_dequantized(graph, source) for source in node.inputs if graph.is_varying(source))


def _is_quantized(graph: Graph, node: Node) -> bool:
    return node.op_type in WEIGHTED and all(is_dequantized(graph, name) for name in node.inputs[:2])
