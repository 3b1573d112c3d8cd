"""The same Q/DQ model with uint8 activations, for OpenVINO.

OpenVINO computes convolutions on uint8 activations. Given int8 ones it moves them by 128 itself, which a convolution
behind a Concat then forgets: its results are wrong (2026.4, x86-64 with AVX-512 VNNI). Moved here, they are right.
TensorRT takes int8 only.
"""

from __future__ import annotations

import numpy as np

from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node

__all__ = ["with_uint8_activations"]

_MIDDLE = 128


def with_uint8_activations(graph: Graph) -> bytes:
    """Return the model with each symmetric int8 activation as uint8 with zero point 128: the same values exactly."""
    editor = ModelEditor(graph)
    moved = {node.outputs[0] for node in graph.nodes if node.op_type == "QuantizeLinear" and _is_signed(graph, node)}
    for position, node in enumerate(graph.nodes):
        reads_moved = node.op_type == "DequantizeLinear" and node.inputs[0] in moved
        if moved.intersection(node.outputs) or reads_moved:
            editor.set_constant_input(position, 2, np.array(_MIDDLE, np.uint8))
    editor.sweep()
    return editor.to_bytes()


def _is_signed(graph: Graph, node: Node) -> bool:
    """Return whether `node` makes int8 with zero point 0 for DequantizeLinear alone."""
    zero = graph.constant(node.input(2)) if node.input(2) else None
    readers = graph.consumers(node.outputs[0])
    return (
        graph.is_varying(node.inputs[0])
        and zero is not None
        and zero.dtype == np.int8
        and zero.ndim == 0
        and zero == 0
        and all(reader.op_type == "DequantizeLinear" for reader in readers)
    )
