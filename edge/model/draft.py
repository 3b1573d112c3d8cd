"""Changing a model: a private copy with small edits, and shape inference with the input fixed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from edge.model.graph import Dim, Graph, graph_from_bytes, infer_shapes, tensor_proto

if TYPE_CHECKING:
    from edge.model.graph import ModelProto, ValueInfoProto

__all__ = ["Draft", "resolve"]

# Inputs that say how large something is: operator -> their indices.
_SHAPE_INPUTS: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


_WITH_SUBGRAPHS = frozenset(("If", "Loop", "Scan"))


class Draft:
    """A private copy of a model that can be changed, and turned into a graph or into bytes again."""

    def __init__(self, graph: Graph) -> None:
        self.proto: ModelProto = copy.deepcopy(graph.proto)
        self._names = {tensor.name for tensor in self.proto.graph.initializer}

    def set_input_shape(self, name: str, shape: tuple[Dim, ...]) -> None:
        """Declare the shape of an input."""
        _declare(next(value for value in self.proto.graph.input if value.name == name), shape)

    def set_output_shape(self, name: str, shape: tuple[Dim, ...]) -> None:
        """Declare the shape of an output."""
        _declare(next(value for value in self.proto.graph.output if value.name == name), shape)

    def forget_shapes(self) -> None:
        """Drop all that the file says of the shapes of its outputs and of the tensors inside."""
        del self.proto.graph.value_info[:]
        for value in self.proto.graph.output:
            value.type.tensor_type.ClearField("shape")

    def set_constant_input(self, position: int, index: int, value: NDArray[Any]) -> None:
        """Give node `position` a constant of its own as input `index`."""
        node = self.proto.graph.node[position]
        name = self._unused_name(f"{node.output[0]}/constant_{index}")
        while len(node.input) <= index:
            node.input.append("")
        node.input[index] = name
        self.proto.graph.initializer.append(tensor_proto(name, value))

    def _unused_name(self, wanted: str) -> str:
        candidates = (f"{wanted}_{number}" for number in itertools.count(1))
        name = next(candidate for candidate in candidates if candidate not in self._names)
        self._names.add(name)
        return name

    def sweep(self) -> None:
        """Remove what nothing reads any more; a graph with subgraphs is left as it is, they may read it."""
        graph = self.proto.graph
        if any(node.op_type in _WITH_SUBGRAPHS for node in graph.node):
            return
        needed = {value.name for value in graph.output}
        kept = []
        for node in reversed(graph.node):
            if needed.intersection(node.output):
                needed.update(node.input)
                kept.append(node)
        kept_tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
        for field, values in ((graph.node, kept[::-1]), (graph.initializer, kept_tensors)):
            copies = copy.deepcopy(values)
            del field[:]
            field.extend(copies)

    def clear_input(self, position: int, index: int) -> None:
        """Leave out the optional input `index` of node `position`."""
        self.proto.graph.node[position].input[index] = ""

    def fold_shape_inputs(self, graph: Graph) -> bool:
        """Replace computed sizes by constants where `graph` knows their value; return whether there was any."""
        found = False
        for position, node in enumerate(graph.nodes):
            for index in _SHAPE_INPUTS.get(node.op_type, ()):
                name = node.input(index)
                is_computed = name != "" and graph.initializer_shape(name) is None
                value = graph.constant(name) if is_computed else None
                if value is not None:
                    self.set_constant_input(position, index, value)
                    found = True
        return found

    def inferred(self) -> Graph:
        """Return the graph with the shapes that can be inferred."""
        return infer_shapes(self.proto)

    def graph(self) -> Graph:
        """Return the graph of what the draft holds now, checked.

        Raises:
            ModelError: if it is not a valid model.
        """
        return graph_from_bytes(self.to_bytes(), "the rewritten model")

    def to_bytes(self) -> bytes:
        """Return the file."""
        data: bytes = self.proto.SerializeToString()
        return data


def resolve(graph: Graph, input_shape: tuple[int, ...]) -> Graph:
    """Return `graph` with its one input fixed to `input_shape` and every shape inferred that can be.

    Sizes that exporters compute inside the graph (Shape, Gather, Concat, Reshape) are folded on the way.
    """
    draft = Draft(graph)
    draft.set_input_shape(graph.inputs[0].name, input_shape)
    draft.forget_shapes()
    while True:
        known = draft.inferred()
        if not draft.fold_shape_inputs(known):
            return known


def _declare(value: ValueInfoProto, shape: tuple[Dim, ...]) -> None:
    tensor = value.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for size in shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
