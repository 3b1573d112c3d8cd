"""Changing a model: a private copy with small edits, and shape inference with the input fixed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from edge.model.graph import Graph, graph_from_bytes, infer_shapes, node_proto, tensor_proto

if TYPE_CHECKING:
    from edge.model.binding import ModelProto, NodeProto, ValueInfoProto

__all__ = ["ModelEditor", "resolve"]

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


_IR_WITH_STORED_APART = 4
_WITH_SUBGRAPHS = frozenset(("If", "Loop", "Scan"))

_FLOAT32 = 1  # of ONNX's TensorProto.DataType


class ModelEditor:
    """A private copy of a model that can be changed, and turned into a graph or into bytes again."""

    def __init__(self, graph: Graph) -> None:
        self.proto: ModelProto = copy.deepcopy(graph.proto)
        self._stored = {tensor.name for tensor in self.proto.graph.initializer}
        self._names = self._stored.union(
            name for node in self.proto.graph.node for name in (node.name, *node.input, *node.output)
        )

    def set_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Declare an input of the model anew."""
        _declare(next(value for value in self.proto.graph.input if value.name == name), shape)

    def forget_shapes(self) -> None:
        """Drop all that the file says of the shapes of its outputs and of the tensors inside."""
        self.forget_values()
        for value in self.proto.graph.output:
            value.type.tensor_type.ClearField("shape")

    def set_constant_input(self, position: int, index: int, value: NDArray[Any]) -> None:
        """Give node `position` a constant of its own as input `index`."""
        wanted = f"{self.proto.graph.node[position].output[0]}/constant_{index}"
        self.set_input(position, index, self.add_constant(wanted, value))

    def add_constant(self, wanted: str, value: NDArray[Any]) -> str:
        """Store `value` under the name `wanted`, or one made from it, and return that name."""
        name = self.unused_name(wanted)
        self.proto.graph.initializer.append(tensor_proto(name, value))
        return name

    def unused_name(self, wanted: str) -> str:
        """Return `wanted`, or with a number where it is taken; from now on it is."""
        candidates = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
        name = next(candidate for candidate in candidates if candidate not in self._names)
        self._names.add(name)
        return name

    def store_inputs_apart(self) -> None:
        """Take stored tensors off the list of inputs, where old exporters put them."""
        values = [copy.deepcopy(value) for value in self.proto.graph.input if value.name not in self._stored]
        del self.proto.graph.input[:]
        self.proto.graph.input.extend(values)
        self.proto.ir_version = max(self.proto.ir_version, _IR_WITH_STORED_APART)

    def set_input(self, position: int, index: int, name: str) -> None:
        """Let input `index` of node `position` read `name`, also where it was not given; "" for nothing."""
        inputs = self.proto.graph.node[position].input
        inputs.extend([""] * (index + 1 - len(inputs)))
        inputs[index] = name

    def rename(self, tensor: str, name: str) -> None:
        """Rename `tensor` to `name` in all nodes; no other node makes `name`, and outputs stay declared."""
        for node in self.proto.graph.node:
            if name in node.output:
                node.output[list(node.output).index(name)] = self.unused_name(f"{name}/before")
        for node in self.proto.graph.node:
            for names in (node.input, node.output):
                for index, old in enumerate(names):
                    names[index] = name if old == tensor else old

    def replace_node(self, position: int, node: NodeProto) -> None:
        self.proto.graph.node[position].CopyFrom(node)

    def set_attributes(self, position: int, attributes: Mapping[str, Any]) -> None:
        """Give the node at `position`, of ONNX's own operators, these attributes and no others."""
        node = self.proto.graph.node[position]
        made = node_proto(node.op_type, list(node.input), list(node.output), name=node.name, **attributes)
        self.replace_node(position, made)

    def forget_values(self) -> None:
        del self.proto.graph.value_info[:]

    def insert_nodes(self, before: Mapping[int, Sequence[NodeProto]]) -> None:
        """Put nodes in front of those at the positions of `before`; the end is one position as well."""
        nodes = self.proto.graph.node
        merged = [copy.deepcopy(x) for i in range(len(nodes) + 1) for x in (*before.get(i, ()), *nodes[i : i + 1])]
        del nodes[:]
        nodes.extend(merged)

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

    def add_output(self, name: str, *, rank: int) -> None:
        """Let a float32 tensor inside be an output, too, of `rank` dimensions of any size."""
        value = self.proto.graph.output.add(name=name)
        value.type.tensor_type.elem_type = _FLOAT32
        _declare(value, (None,) * rank)

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

    def graph(self) -> Graph:
        """Return the graph of what the editor holds now, checked. Raises `ModelError` if it is not a valid model."""
        return graph_from_bytes(self.to_bytes(), "the rewritten model")

    def to_bytes(self) -> bytes:
        data: bytes = self.proto.SerializeToString()
        return data


def resolve(graph: Graph, input_shape: tuple[int, ...]) -> Graph:
    """Return `graph` with its one input fixed to `input_shape` and every shape inferred that can be.

    Sizes that exporters compute inside the graph (Shape, Gather, Concat, Reshape) are folded on the way.
    """
    editor = ModelEditor(graph)
    editor.set_shape(graph.inputs[0].name, input_shape)
    editor.forget_shapes()
    while True:
        known = infer_shapes(editor.proto)
        if not editor.fold_shape_inputs(known):
            return known


def _declare(value: ValueInfoProto, shape: tuple[int | None, ...]) -> None:
    tensor = value.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for size in shape:
        dim = tensor.shape.dim.add()
        if size is not None:
            dim.dim_value = size
