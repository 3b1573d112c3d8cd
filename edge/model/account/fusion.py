"""Which operators run as one layer: what engines fuse.

A weighted operator takes the pointwise ones behind it (bias, normalization, activation, residual Add) as long as nobody
else reads what is in between; pointwise operators in a row are one layer, too. All others are layers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge.model.account.flow import Flow
from edge.model.graph import Node
from edge.model.node import POINTWISE
from edge.model.qdq.placement import WEIGHTED

__all__ = ["Fused", "fused_layers", "is_pointwise"]

_MOST_BETWEEN = 3  # operators of an activation between its input and where it meets it again: Mish has two


@dataclass(frozen=True, slots=True)
class Fused:
    """Operators that run as one layer; the first gives it its name and its work."""

    nodes: tuple[Node, ...]

    @property
    def first(self) -> Node:
        """The operator that the others are fused with."""
        return self.nodes[0]

    @property
    def outputs(self) -> tuple[str, ...]:
        """What any of its operators makes."""
        return tuple(name for node in self.nodes for name in node.outputs if name)

    def has(self, node: Node | None) -> bool:
        """Return whether `node` runs in this layer."""
        return any(one is node for one in self.nodes)


def is_pointwise(node: Node) -> bool:
    """Return whether `node` works out each value from the values at its place, and stored ones."""
    return node.op_type in POINTWISE or node.op_type == "BatchNormalization"


def fused_layers(flow: Flow) -> tuple[Fused, ...]:
    """Return the layers in the order of their first operators."""
    return _Fuser(flow).layers()


class _Fuser:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._positions = {id(node): position for position, node in enumerate(flow.graph.nodes)}
        self._layers: list[list[Node]] = []
        self._layer_of: dict[int, list[Node]] = {}

    def layers(self) -> tuple[Fused, ...]:
        for node in self._flow.graph.nodes:
            if not self._flow.is_folded(node):
                self._add(node)
        return tuple(Fused(tuple(nodes)) for nodes in self._layers)

    def _add(self, node: Node) -> None:
        host = self._host(node) if is_pointwise(node) else None
        if host is None:
            host = []
            self._layers.append(host)
        host.append(node)
        self._layer_of[id(node)] = host

    def _host(self, node: Node) -> list[Node] | None:
        """Return the layer that `node` is fused into: of those that may take it the one that is ready last."""
        tensors = [self._flow.carried(name) for name in node.inputs]
        makers = [self._flow.graph.producer(name) for name in tensors if self._may_end_in(node, name)]
        known = [maker for maker in makers if maker is not None and id(maker) in self._layer_of]
        open_ = [maker for maker in known if _takes_pointwise(self._layer_of[id(maker)][0])]
        last = max(open_, key=lambda maker: self._positions[id(maker)], default=None)
        return None if last is None else self._layer_of[id(last)]

    def _may_end_in(self, node: Node, tensor: str) -> bool:
        """Return whether `tensor`, of the same shape as what `node` makes, need not be stored for anybody else."""
        graph = self._flow.graph
        if self._flow.is_output(tensor) or graph.shape(tensor) != graph.shape(node.outputs[0]):
            return False
        readers = list(self._flow.is_read_whole_by(tensor))
        return all(reader is node or self._waits_for(reader, [node], _MOST_BETWEEN) for reader in readers)

    def _waits_for(self, reader: Node, nodes: Sequence[Node], most: int) -> bool:
        """Return whether `reader` needs what one of `nodes` makes, with at most `most` pointwise ones between."""
        if most == 0 or not is_pointwise(reader):
            return False
        makers = [self._flow.graph.producer(self._flow.carried(name)) for name in reader.inputs]
        known = [maker for maker in makers if maker is not None]
        return any(maker in nodes or self._waits_for(maker, nodes, most - 1) for maker in known)


def _takes_pointwise(first: Node) -> bool:
    return first.op_type in WEIGHTED or is_pointwise(first) or first.op_type == "Transpose"
