"""The order of nodes in a file."""

from __future__ import annotations

import copy
import graphlib
from typing import Any

__all__ = ["sort_nodes"]


def sort_nodes(proto: Any) -> None:
    """Put each node of an ONNX `ModelProto` behind those it reads from, as ONNX demands.

    Some fp16 converters append their casts at the end.
    """
    made = {name: position for position, node in enumerate(proto.graph.node) for name in node.output if name}
    if all(made.get(name, -1) < i for i, node in enumerate(proto.graph.node) for name in node.input):
        return
    needs = {i: {made[name] for name in node.input if name in made} for i, node in enumerate(proto.graph.node)}
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError:
        return  # the checker says so
    nodes = copy.deepcopy([proto.graph.node[i] for i in order])
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
