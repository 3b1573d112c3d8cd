"""How small the values of a tensor can be, by the operators that make it: SiLU never goes below -0.28."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from edge.model.graph import Graph, Node
from edge.model.qdq.placement import gate_of, is_moving

__all__ = ["lowest_values"]

_SWISH = -0.27846455  # the minimum of x * sigmoid(x), at x = -1.2784645
_LOWEST: Mapping[str, float] = {
    "Sigmoid": 0.0,
    "HardSigmoid": 0.0,
    "Softmax": 0.0,
    "Relu": 0.0,
    "HardSwish": -0.375,  # x * min(max(x + 3, 0), 6) / 6 at x = -1.5
    "Mish": -0.30885,  # x * tanh(log(1 + exp(x))) at x = -1.1924
}


def lowest_values(graph: Graph) -> dict[str, float]:
    """Return a value that nothing in a tensor is below, by tensor; what can be of any size is left out."""
    found: dict[str, float] = {}
    for node in graph.nodes:
        lowest = _lowest(graph, node, found)
        if lowest is not None:
            found |= dict.fromkeys((name for name in node.outputs if name), lowest)
    return found


def _lowest(graph: Graph, node: Node, found: Mapping[str, float]) -> float | None:
    if node.op_type in _LOWEST:
        return _LOWEST[node.op_type]
    if (gate := gate_of(graph, node)) is not None:
        return _SWISH if gate.op_type == "Sigmoid" else _hard_swish(gate)
    if node.op_type == "Clip":
        return _constant(graph, node.input(1), min)
    if node.op_type == "Add":
        return _joined(_each(graph, node, found), sum)
    return _joined(_each(graph, node, found), min) if is_moving(node) else None


def _hard_swish(gate: Node) -> float:
    """Return the minimum of x * (alpha * x + beta), which that of x * clip(alpha * x + beta, 0, 1) is not below."""
    alpha, beta = (float(gate.attributes.get(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5)))
    return -(beta**2) / (4 * alpha) if alpha > 0 else -np.inf


def _each(graph: Graph, node: Node, found: Mapping[str, float]) -> Iterator[float | None]:
    """Yield the lowest value of each input that holds values; of Resize and Slice only the first one does."""
    for name in node.inputs if node.op_type in ("Add", "Concat") else node.inputs[:1]:
        yield found.get(name) if graph.is_varying(name) else _constant(graph, name, min)


def _joined(lowest: Iterator[float | None], how: Callable[[list[float]], float]) -> float | None:
    values = list(lowest)
    known = [value for value in values if value is not None]
    return how(known) if known and len(known) == len(values) else None


def _constant(graph: Graph, name: str, how: Callable[[Any], Any]) -> float | None:
    value = graph.constant(name) if name else None
    return None if value is None or not value.size or not np.isfinite(value).all() else float(how(value.reshape(-1)))
