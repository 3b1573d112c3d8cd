"""Beside each weighted node in INT8 the same in float on the same tensor: what differs is the noise of its rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge.model.editor import ModelEditor
from edge.model.graph import Graph, graph_from_bytes, node_proto
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.placement import called

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["with_float_copies"]


def with_float_copies(quantized: QdqModel, resolved: Graph) -> tuple[bytes, dict[str, str]]:
    """Return a Q/DQ model that also computes its nodes in INT8 in float, and what the results are called, by node.

    A copy reads the activation in front of its Q/DQ pair, and the weight as it was; its result is a further output.
    Every tensor holds what it holds in the float model again, also where pairs stand around a centre.

    Args:
        quantized: what `insert_qdq` made of a float model.
        resolved: that float model, with the shapes that can be inferred.
    """
    graph = graph_from_bytes(quantized.model, "Q/DQ model")
    editor, copies = ModelEditor(graph), dict[str, str]()
    made = [_raised(editor, name, quantized.centres[name].value) for name in quantized.lowered]
    stored: dict[str, str] = {}
    for node in (node for node in resolved.nodes if called(node) in quantized.quantized_nodes):
        read = [_source(editor, graph, resolved, name, stored) for name in node.inputs]
        output = copies[called(node)] = editor.unused_name(f"{node.outputs[0]}/float")
        made.append(node_proto(node.op_type, read, [output], name=editor.unused_name(output), **node.attributes))
        editor.add_output(output, rank=len(resolved.shape(node.outputs[0]) or ()))
    editor.insert_nodes({len(graph.nodes): made})
    return editor.to_bytes(), copies


def _raised(editor: ModelEditor, name: str, centre: float) -> NodeProto:
    """Return a node that makes `name` what it is in the float model, for the copies and whoever looks inside."""
    lowered = editor.unused_name(f"{name}/lowered")
    editor.rename(name, lowered)
    value = editor.add_constant(f"{name}/centre", np.array(centre, np.float32))
    return node_proto("Add", [lowered, value], [name], name=editor.unused_name(f"{name}/raised"))


def _source(editor: ModelEditor, graph: Graph, exact: Graph, name: str, stored: dict[str, str]) -> str:
    """Return where the Q/DQ model has what is called `name` in the float one; stored there again if it was dropped."""
    value = None if not name or exact.is_varying(name) else exact.constant(name)
    if value is None or graph.initializer_shape(name) is not None:
        return name
    if name not in stored:
        stored[name] = editor.add_constant(f"{name}/float", value)
    return stored[name]
