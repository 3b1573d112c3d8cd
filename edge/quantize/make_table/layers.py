"""The layers that INT8 can be chosen for, and what each of them costs."""

from __future__ import annotations

from edge.calibrate.search import Layer
from edge.model.cost import cost_for_one
from edge.model.graph import Graph
from edge.model.qdq.placement import WEIGHTED, called, place
from edge.types import ModelSpec

__all__ = ["layers_of"]


def layers_of(graph: Graph, spec: ModelSpec) -> tuple[Layer, ...]:
    """Return the weighted layers of a float model that can run in INT8, in the order of the file."""
    cost = cost_for_one(graph, spec)
    by_output = {node.output: node for node in cost.nodes}
    last = _last(graph)
    layers = []
    for node in place(graph).quantized:
        found = by_output[node.outputs[0]]
        layers.append(
            Layer(
                name=called(node),
                mac_share=found.macs / max(1, cost.macs),
                is_depthwise=found.is_depthwise,
                is_last=called(node) in last,
            )
        )
    return tuple(layers)


def _last(graph: Graph) -> frozenset[str]:
    """Return the weighted nodes behind which there is no other one."""
    found, seen = set(), set()
    waiting = [info.name for info in graph.outputs]
    while waiting:
        tensor = waiting.pop()
        node = graph.producer(tensor)
        if node is None or tensor in seen:
            continue
        seen.add(tensor)
        if node.op_type in WEIGHTED and graph.is_varying(tensor) and graph.constant(node.inputs[1]) is not None:
            found.add(called(node))
        else:
            waiting.extend(name for name in node.inputs if graph.is_varying(name))
    return frozenset(found)
