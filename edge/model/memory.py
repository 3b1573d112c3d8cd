"""What a model's tensors take at once, worked out from their shapes before anything native is given the model."""

from __future__ import annotations

import math

from edge.errors import ModelError
from edge.model.graph import Graph

__all__ = ["MAX_WORKING_BYTES", "check_working_memory", "working_bytes"]

MAX_WORKING_BYTES = 2 << 30
"""Of one frame in float32: four times what the largest YOLO takes at 1280 x 1280, and what a small Jetson has free."""

_ELEMENT_BYTES = 4


def working_bytes(resolved: Graph) -> tuple[int, str]:
    """Return the most bytes that tensors of known shape take at once, and the tensor at which they do.

    Each is counted from the node that makes it to the last one that reads it, as float32.

    Args:
        resolved: a graph whose shapes are worked out, nodes in order.
    """
    last = {name: position for position, node in enumerate(resolved.nodes) for name in node.inputs}
    live: dict[str, int] = {}
    most, where = 0, ""
    for position, node in enumerate(resolved.nodes):
        live.update({name: _bytes(resolved, name) for name in node.outputs if name})
        total = sum(live.values())
        if total > most:
            most, where = total, max(node.outputs, key=lambda name: live.get(name, 0))
        for name in [*node.inputs, *node.outputs]:
            if last.get(name, -1) <= position:
                live.pop(name, None)
    return most, where


def check_working_memory(resolved: Graph, *, where: str, batch: int) -> None:
    """Raise ModelError if the model takes more than `MAX_WORKING_BYTES` for each of `batch` frames."""
    total, tensor = working_bytes(resolved)
    if total > MAX_WORKING_BYTES * batch:
        raise ModelError(
            f"{where}: its tensors take {total} bytes at once for {batch} frames (at {tensor[:100]!r}, "
            f"{resolved.shape(tensor)}), at most {MAX_WORKING_BYTES} for each are allowed",
            hint="export it for a smaller input; if the model is not yours, do not trust it",
        )


def _bytes(graph: Graph, name: str) -> int:
    return _ELEMENT_BYTES * math.prod(graph.shape(name) or (0,))
