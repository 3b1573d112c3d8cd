"""The float16 variants: what is not INT8 computes in float16, as strongly typed TensorRT takes the types of the file.

Input and output stay float32, and so does decoding: all that no convolution or matrix product comes after. Boxes of
640 pixels would move by half a pixel, and scores that differ would become equal. Q/DQ pairs stay float32, between
casts: a scale in float16 has half its digits, and none where it is small (docs/adr/0002).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, node_proto
from edge.model.node import QDQ_OPERATORS
from edge.model.opset import element_types, with_opset
from edge.model.qdq.placement import WEIGHTED, called

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["float16_model", "halve"]

_FLOAT32_INPUTS: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2)}  # regions and factors stay as they are
_WITH_SUBGRAPHS = frozenset(("If", "Loop", "Scan"))
_LARGEST = float(np.finfo(np.float16).max)
_OPSET = 13  # the first in which every operator that our models have takes float16


def float16_model(graph: Graph, where: str) -> bytes:
    """Return a float32 model that computes in float16, up to its decoding, with float32 input and output.

    `where`: names the model in errors.
    Raises `ModelError` if it carries Q/DQ pairs, has subgraphs, or constants that float16 cannot hold.
    """
    if any(node.op_type in QDQ_OPERATORS for node in graph.nodes):
        raise ModelError(
            f"{where}: carries Q/DQ pairs, whose float16 form would be another model", hint="start from the float model"
        )
    graph = with_opset(graph, _OPSET, where)
    editor = ModelEditor(graph)
    editor.store_inputs_apart()
    halve(editor, where)
    editor.sweep()
    editor.graph()
    return editor.to_bytes()


def halve(editor: ModelEditor, where: str, *, exact: Collection[str] = ()) -> None:
    """Let `editor`, a float32 model with or without Q/DQ pairs, compute in float16.

    `where`: names the model in errors. `exact`: tensors that are made in float32 all the same, as pairs are.
    Raises `ModelError` if it has subgraphs, or constants that float16 cannot hold.
    """
    graph = Graph(editor.proto)
    if found := sorted({node.op_type for node in graph.nodes} & _WITH_SUBGRAPHS):
        raise ModelError(f"{where}: {', '.join(found)} cannot be changed to float16", hint="export it without branches")
    _Halver(editor, graph, where, exact).run()


def _body(graph: Graph, exact: Collection[str]) -> frozenset[int]:
    """Return the positions of what computes on pixels and has a weighted node behind it, or is one; pairs left out."""
    needed: set[str] = set()
    body = set()
    for position, node in reversed(list(enumerate(graph.nodes))):
        is_needed = node.op_type in WEIGHTED or not needed.isdisjoint(node.outputs)
        if is_needed and graph.is_varying(node.outputs[0]):
            needed.update(node.inputs)
            if node.op_type not in QDQ_OPERATORS and node.outputs[0] not in exact:
                body.add(position)
    return frozenset(body)


class _Halver:
    """Gives the nodes of the body float16 inputs, and casts where its border is crossed."""

    def __init__(self, editor: ModelEditor, graph: Graph, where: str, exact: Collection[str]) -> None:
        self._draft = editor
        self._graph = graph
        self._types = element_types(graph)
        self._where = where
        self._body = _body(graph, exact)
        self._half = self._made_in_half()
        self._other: dict[tuple[str, str], str] = {}
        self._before: dict[int, list[NodeProto]] = {}

    def run(self) -> None:
        self._draft.forget_values()
        for position, node in enumerate(self._graph.nodes):
            for index, name in enumerate(node.inputs):
                if name and node.op_type != "Shape":
                    self._draft.set_input(position, index, self._fed(position, index, name))
            if position in self._body and node.op_type == "Cast" and node.outputs[0] in self._half:
                self._draft.set_attributes(position, {"to": "float16"})
        self._restore_outputs()
        self._draft.insert_nodes(self._before)

    def _made_in_half(self) -> set[str]:
        made = (name for position in self._body for name in self._graph.nodes[position].outputs if name)
        return {name for name in made if self._types.get(name) == "float32"}

    def _fed(self, position: int, index: int, name: str) -> str:
        """Return what node `position` has to read instead of `name`."""
        node = self._graph.nodes[position]
        if position not in self._body:
            return self._cast(name, "float32", position) if name in self._half else name
        if index in _FLOAT32_INPUTS.get(node.op_type, ()) or name in self._half:
            return name
        stored = self._graph.dtype(name)
        if (self._types.get(name) if stored is None else stored) != "float32":
            return name
        maker = self._graph.producer(name)
        is_dequantized = maker is not None and maker.op_type in QDQ_OPERATORS
        if is_dequantized or self._graph.is_varying(name):
            return self._cast(name, "float16", position)
        value = self._graph.constant(name)
        return self._cast(name, "float16", position) if value is None else self._constant(name, value, node)

    def _constant(self, name: str, value: NDArray[Any], reader: Node) -> str:
        if (name, "float16") not in self._other:
            finite = value[np.isfinite(value)]
            if finite.size and np.abs(finite).max() > _LARGEST:
                raise ModelError(
                    f"{self._where}: {called(reader)} reads {np.abs(finite).max():g}, which float16 cannot hold",
                    hint="use the float32 variant",
                )
            self._other[name, "float16"] = self._draft.add_constant(f"{name}/float16", value.astype(np.float16))
        return self._other[name, "float16"]

    def _cast(self, name: str, to: str, position: int) -> str:
        if (name, to) not in self._other:
            made = self._draft.unused_name(f"{name}/{to}")
            label = self._draft.unused_name(f"{name}/Cast")
            self._before.setdefault(position, []).append(node_proto("Cast", [name], [made], name=label, to=to))
            self._other[name, to] = made
        return self._other[name, to]

    def _restore_outputs(self) -> None:
        """Give outputs that the body makes their name and type back."""
        end = len(self._graph.nodes)
        for info in self._graph.outputs:
            if info.name in self._half:
                renamed = self._draft.unused_name(f"{info.name}/inner")
                self._draft.rename(info.name, renamed)
                label = self._draft.unused_name(f"{info.name}/Cast")
                cast = node_proto("Cast", [renamed], [info.name], name=label, to="float32")
                self._before.setdefault(end, []).append(cast)
                for node in (node for nodes in self._before.values() for node in nodes if node is not cast):
                    node.input[0] = renamed if node.input[0] == info.name else node.input[0]
