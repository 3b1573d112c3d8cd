"""Who makes and who reads a tensor, looking through what moves no bytes in an engine, and in which type it is stored.

Q/DQ pairs fold into the layers around them. Reshapes, and Split, Slice and Concat, are ways of looking at memory: who
makes a part of a Concat writes it to its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from edge.model.graph import Graph, Node
from edge.model.obstacles import QDQ_OPERATORS
from edge.model.qdq.share import is_dequantized

__all__ = ["Flow", "is_moving_layer"]

_SAME = frozenset((*QDQ_OPERATORS, "Cast", "CastLike", "Dropout", "Identity"))
_VIEWS = frozenset(("Concat", "Flatten", "Reshape", "Split", "Squeeze", "Unsqueeze"))
_MOVING = frozenset(
    ("DepthToSpace", "Expand", "Gather", "MaxPool", "Pad", "Slice", "SpaceToDepth", "Tile", "Transpose")
)


class Flow:
    """The tensors of a graph whose shapes are known, as engines move them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs = {info.name for info in graph.inputs}
        self._outputs = {info.name for info in graph.outputs}
        self._wanted: dict[str, frozenset[bool]] = {}

    def carried(self, name: str) -> str:
        """Return the tensor whose values `name` has, whatever type they are stored in."""
        node = self.graph.producer(name)
        while node is not None and node.op_type in _SAME and self.graph.is_varying(name):
            name = node.inputs[0]
            node = self.graph.producer(name)
        return name

    def is_folded(self, node: Node) -> bool:
        """Return whether `node` is no layer: it depends on no pixel, or moves no byte."""
        if not any(self.graph.is_varying(name) for name in node.outputs):
            return True
        return node.op_type in _SAME or self._is_view(node) or self._is_padding(node)

    def is_read_whole_by(self, tensor: str) -> Iterator[Node]:
        """Yield the nodes that read `tensor` as it is, through Q/DQ pairs."""
        for node in self.graph.consumers(tensor):
            if node.op_type in _SAME:
                yield from self.is_read_whole_by(node.outputs[0])
            elif any(self.graph.is_varying(name) for name in node.outputs):
                yield node

    def is_output(self, tensor: str) -> bool:
        """Return whether the model gives back `tensor`, or what has its values."""
        return any(self.carried(name) == tensor for name in self._outputs)

    def leaves(self, tensor: str) -> Iterator[tuple[Node | None, bool]]:
        """Yield the layers that read `tensor`, or parts of it, and whether in INT8; None where the model gives it back.

        Args:
            tensor: that some layer makes.
        """
        if tensor in self._outputs:
            yield None, False
        for node in self.graph.consumers(tensor):
            if not self.is_folded(node):
                yield node, self.reads_int8(node, tensor)
            elif any(map(self.graph.is_varying, node.outputs)):
                for out in node.outputs:
                    yield from self.leaves(out)

    def reads_int8(self, node: Node, tensor: str) -> bool:
        """Return whether the layer of `node` reads `tensor` in INT8: dequantized, or moved to where it is quantized."""
        if is_dequantized(self.graph, tensor):
            return True
        return is_moving_layer(node) and self.wanted(node.outputs[0]) == {True}

    def wanted(self, tensor: str) -> frozenset[bool]:
        """Return in which types `tensor` is read: INT8 (True), float (False), both, or not at all."""
        if tensor not in self._wanted:
            self._wanted[tensor] = frozenset(is_int8 for _, is_int8 in self.leaves(tensor))
        return self._wanted[tensor]

    def root(self, tensor: str) -> str:
        """Return the tensor whose memory `tensor` lies in: one that a layer or a Concat makes, or an input."""
        node = self.graph.producer(tensor)
        if node is None or node.op_type == "Concat" or not self.is_folded(node):
            return tensor
        return self.root(node.inputs[0])

    def is_of_input(self, tensor: str) -> bool:
        """Return whether `tensor` is the picture itself, or a part of it."""
        return self.root(tensor) in self._inputs

    def _is_view(self, node: Node) -> bool:
        return node.op_type in _VIEWS or (node.op_type == "Slice" and self._steps(node) == {1})

    def _steps(self, node: Node) -> set[int]:
        steps = self.graph.constant(node.input(4)) if node.input(4) else None
        return {1} if steps is None else {int(step) for step in steps.reshape(-1)}

    def _is_padding(self, node: Node) -> bool:
        """Return whether `node` pads what only convolutions read: they pad themselves."""
        return node.op_type == "Pad" and all(one.op_type == "Conv" for one in self.is_read_whole_by(node.outputs[0]))


def is_moving_layer(node: Node) -> bool:
    """Return whether every value that `node` makes is one of those that it reads, but bytes are moved for it."""
    if node.op_type in ("Resize", "Upsample"):
        return bool(node.attributes.get("mode", "nearest") == "nearest")
    return node.op_type in _MOVING
