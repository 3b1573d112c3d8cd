"""Ranges of the tensors that no Q/DQ pair stands on: TensorRT's implicit INT8 and the DLA want them all.

What an operator cannot enlarge needs no look: a Concat holds no more than what goes in, a sigmoid no more than 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from edge.model.graph import Graph, Node

__all__ = ["derived_peaks", "is_range", "tensors_to_look_at"]

_BOUNDED = frozenset(("HardSigmoid", "Sigmoid", "Softmax", "Tanh"))  # by 1
# fmt: off
_MOVING_FIRST = frozenset((
    "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample",
))
# fmt: on


def tensors_to_look_at(graph: Graph, tensors: Sequence[str], *, scores: Collection[str]) -> tuple[str, ...]:
    """Return those of `tensors` whose peak does not follow from others.

    Args:
        graph: the float model.
        tensors: all that no histogram is kept of.
        scores: to be looked at in any case: that an object was seen shows there.
    """
    return tuple(name for name in tensors if name in scores or _sources(graph, name) is None)


def derived_peaks(graph: Graph, tensors: Sequence[str], known: Mapping[str, float]) -> dict[str, float]:
    """Return the peaks of `tensors` that follow from those that are `known`, in the order of the graph."""
    peaks = dict(known)
    for name in _in_order(graph, tensors):
        sources = _sources(graph, name)
        if name not in peaks and sources is not None and all(source in peaks for source in sources):
            peaks[name] = max((peaks[source] for source in sources), default=1.0)
    return {name: peaks[name] for name in tensors if name in peaks and name not in known}


def is_range(peak: float) -> bool:
    """Return whether a scale can be made of `peak`: a model may hold infinities, as masks do, and dead tensors."""
    return math.isfinite(peak) and peak > 0


def _in_order(graph: Graph, tensors: Sequence[str]) -> Iterator[str]:
    wanted = set(tensors)
    return (name for node in graph.nodes for name in node.outputs if name in wanted)


def _sources(graph: Graph, tensor: str) -> tuple[str, ...] | None:
    """Return the tensors that bound `tensor`, () where 1 does, None where nothing does."""
    node = graph.producer(tensor)
    if node is None:
        return None
    if node.op_type in _BOUNDED:
        return ()
    if node.op_type == "Concat":
        return node.inputs if _all_vary(graph, node) else None
    if node.op_type in _MOVING_FIRST and node.attributes.get("mode") != "cubic":
        return node.inputs[:1]
    return None


def _all_vary(graph: Graph, node: Node) -> bool:
    return all(graph.is_varying(name) for name in node.inputs)
