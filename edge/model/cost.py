"""Multiply-accumulates and parameters of each node for one frame, from the inferred shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from edge.model.editor import resolve
from edge.model.graph import Graph, Node
from edge.types import ImageSize, ModelSpec

__all__ = [
    "ModelCost",
    "NodeCost",
    "cost_for_one",
    "cost_of_model",
    "mac_share",
    "macs_of",
    "parameters_of",
    "resolved_for_one",
]

_WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu", "BatchNormalization"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """Work of one node for one frame; `output`, its first output, tells nodes without names apart."""

    output: str
    macs: int
    parameters: int
    is_depthwise: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """Sums over the nodes that multiply weights or activations, in the order of the graph."""

    macs: int
    parameters: int
    nodes: tuple[NodeCost, ...]

    @property
    def depthwise(self) -> tuple[NodeCost, ...]:
        return tuple(node for node in self.nodes if node.is_depthwise)


def resolved_for_one(graph: Graph, spec: ModelSpec) -> Graph:
    """Return `graph` with the shapes of one frame, or of its fixed batch."""
    size = spec.preprocess.size
    return resolve(graph, (spec.batch or 1, 3, size.height, size.width))


def cost_for_one(graph: Graph, spec: ModelSpec) -> ModelCost:
    """Return the cost of one frame, worked out once for a graph: a search asks for each of its hundred trials."""
    known = _known.setdefault(graph, {})
    key = (spec.batch, spec.preprocess.size)
    if key not in known:
        known[key] = cost_of_model(resolved_for_one(graph, spec), spec)
    return known[key]


_known: WeakKeyDictionary[Graph, dict[tuple[int | None, ImageSize], ModelCost]] = WeakKeyDictionary()


def mac_share(graph: Graph, spec: ModelSpec, nodes: Iterable[Node]) -> float:
    """Return the multiply-accumulates of some nodes of a model, of all."""
    cost, outputs = cost_for_one(graph, spec), {node.outputs[0] for node in nodes}
    return sum(node.macs for node in cost.nodes if node.output in outputs) / max(1, cost.macs)


def cost_of_model(resolved: Graph, spec: ModelSpec) -> ModelCost:
    """Return the cost of one frame. `resolved`: what `resolved_for_one` returns."""
    nodes = tuple(_cost(node, resolved, spec.batch or 1) for node in resolved.nodes if node.op_type in _WEIGHTED)
    return ModelCost(
        macs=sum(node.macs for node in nodes), parameters=sum(node.parameters for node in nodes), nodes=nodes
    )


def _cost(node: Node, graph: Graph, batch: int) -> NodeCost:
    group = node.attributes.get("group", 1)
    weight = graph.shape(node.inputs[1]) or ()
    return NodeCost(
        output=node.outputs[0],
        macs=macs_of(node, graph) // batch,
        parameters=parameters_of(node, graph),
        is_depthwise=node.op_type == "Conv" and group > 1 and len(weight) > 1 and weight[1] == 1,
    )


def parameters_of(node: Node, graph: Graph) -> int:
    """Return how many stored values a node multiplies or adds; 0 for one that has no weights."""
    stored = (name for name in node.inputs[1:] if name and not graph.is_varying(name))
    return sum(math.prod(graph.shape(name) or (0,)) for name in stored) if node.op_type in _WEIGHTED else 0


def macs_of(node: Node, graph: Graph) -> int:
    """Return products of one run of a node, with its whole batch; 0 where a shape is unknown."""
    shapes = [graph.shape(name) for name in (*node.inputs[:2], node.outputs[0])]
    if any(shape is None for shape in shapes):
        return 0
    left, right, out = (shape or () for shape in shapes)
    match node.op_type:
        case "Conv":  # weight (C_out, C_in / group, kernel...)
            return math.prod(out) * math.prod(right[1:])
        case "ConvTranspose":  # weight (C_in, C_out / group, kernel...)
            return math.prod(left) * math.prod(right[1:])
        case "Gemm":
            return math.prod(out) * left[0 if node.attributes.get("transA", 0) else 1]
        case "MatMul":
            return math.prod(out) * left[-1]
    return 0
