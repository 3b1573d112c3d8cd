"""What a DequantizeLinear makes of stored integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.model.graph import Graph, Node

__all__ = ["dequantized"]


def dequantized(graph: Graph, node: Node) -> NDArray[Any] | None:
    """Return the values that `node`, a DequantizeLinear, makes of what is stored, in the type of its scales.

    None if values or scales are not stored, or the values are no int8, uint8 or int32.
    """
    values, scale, zero = (graph.constant(name) if name else None for name in (node.input(i) for i in range(3)))
    if values is None or scale is None or values.dtype not in (np.int8, np.uint8, np.int32):
        return None
    axis = node.attributes.get("axis", 1) % max(1, values.ndim)
    alone = [1] * values.ndim
    spread = [-1 if i == axis else 1 for i in range(values.ndim)]
    offset = 0 if zero is None else zero.astype(np.int32).reshape(spread if zero.size > 1 else alone)
    scales = scale.reshape(spread if scale.size > 1 else alone)
    return ((values.astype(np.int32) - offset) * scales).astype(scale.dtype)
