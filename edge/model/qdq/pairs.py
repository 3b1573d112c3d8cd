"""Q/DQ pairs of activations, some of them around a centre (`edge.model.qdq.centre`), in one of two ways to write one.

int8: `Sub` takes the centre off in front of Q, a residual Add gets it back, and what a padded convolution reads is
padded by minus the centre in front of Q, where TensorRT makes it one kernel with the activation function.
uint8: the centre is the zero point, and nothing else changes. Both hold the same levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edge.model.editor import ModelEditor
from edge.model.graph import Graph, node_proto
from edge.model.qdq.centre import Centre, padding_of
from edge.model.qdq.placement import Placement, is_moving
from edge.model.qdq.scales import scale_of

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["Pairs", "moved_tensors"]

_MIDDLE = 128  # of the levels of uint8


class Pairs:
    """Puts pairs into a copy of a graph.

    Args:
        editor: the copy; is changed, but for new nodes.
        graph: a float model.
        amax: range of each quantized tensor.
        around: centre of some of them.
        has_zero_points: write uint8, with centres as zero points.

    Attributes:
        before: new nodes by the position that they belong in front of.
        exact: tensors with a centre taken off or put back, and padded ones.
    """

    def __init__(
        self,
        editor: ModelEditor,
        graph: Graph,
        amax: Mapping[str, float],
        around: Mapping[str, Centre],
        *,
        has_zero_points: bool,
    ) -> None:
        self.before: dict[int, list[NodeProto]] = {}
        self.exact: set[str] = set()
        self._draft = editor
        self._graph = graph
        self._amax = amax
        self._around = around
        self._has_zero_points = has_zero_points
        self._lowered: dict[str, str] = {}
        self._dequantized: dict[tuple[str, tuple[int, ...]], str] = {}

    def write(self, placement: Placement) -> None:
        """Put a pair in front of each reader that `placement` wants one for."""
        if not self._has_zero_points:
            self._lower(placement)
        for position, index in placement.pairs:
            name = self._graph.nodes[position].inputs[index]
            self._draft.set_input(position, index, self._read(name, position))

    def is_lowered(self, name: str) -> bool:
        """Return whether what reads `name` in INT8 gets it less its centre."""
        return name in self._around and not self._has_zero_points

    def insert(self, op_type: str, inputs: tuple[str, ...], output: str, position: int, **attributes: int) -> str:
        """Put a new node in front of the one at `position`, and return what its output is called."""
        made = self._draft.unused_name(output)
        label = self._draft.unused_name(f"{inputs[0]}/{op_type}")
        self.before.setdefault(position, []).append(node_proto(op_type, inputs, [made], name=label, **attributes))
        return made

    def _lower(self, placement: Placement) -> None:
        """Take the centres off where their groups begin: what Concat and the like make of them is centred by that."""
        moved = moved_tensors(self._graph, placement)
        for position, index in placement.edges:
            name = self._graph.nodes[position].inputs[index]
            if name in self._around and name not in moved:
                if name not in self._lowered:
                    inputs = (name, self._constant(f"{name}/centre", self._around[name].value))
                    self._lowered[name] = self._exact("Sub", inputs, f"{name}/centred", position)
                self._draft.set_input(position, index, self._lowered[name])

    def _read(self, name: str, position: int) -> str:
        """Return what a node reads: a convolution has the centre in its bias, a residual Add gets it back."""
        node = self._graph.nodes[position]
        if not self.is_lowered(name):
            return self._pair(name, (), position)
        if node.op_type == "Add":
            inputs = (self._pair(name, (), position), self._constant(f"{name}/centre", self._around[name].value))
            return self._exact("Add", inputs, f"{name}/restored", position)
        pads = padding_of(node)
        if pads:
            self._draft.set_attributes(position, {**node.attributes, "pads": [0] * len(pads)})
        return self._pair(name, pads, position)

    def _pair(self, name: str, pads: tuple[int, ...], position: int) -> str:
        """Return what a pair makes of `name`, padded in front of it."""
        if (name, pads) not in self._dequantized:
            read = self._padded(name, pads, position) if pads else self._lowered.get(name, name)
            label = read if pads else name
            range_ = self._around[name].range_ if name in self._around else self._amax[name]
            scale = self._draft.add_constant(f"{label}/scale", scale_of(range_))
            zero = self._draft.add_constant(f"{label}/zero_point", self._zero(name))
            quantized = self.insert("QuantizeLinear", (read, scale, zero), f"{label}/quantized", position)
            made = self.insert("DequantizeLinear", (quantized, scale, zero), f"{label}/dequantized", position)
            self._dequantized[name, pads] = made
        return self._dequantized[name, pads]

    def _padded(self, name: str, pads: tuple[int, ...], position: int) -> str:
        """Return `name` less its centre, with zeros less the centre around it."""
        begin, end = pads[: len(pads) // 2], pads[len(pads) // 2 :]
        widths = self._draft.add_constant(f"{name}/pads", np.array((0, 0, *begin, 0, 0, *end), np.int64))
        inputs = (self._lowered.get(name, name), widths, self._constant(f"{name}/pad", -self._around[name].value))
        return self._exact("Pad", inputs, f"{name}/padded", position)

    def _zero(self, name: str) -> np.ndarray[tuple[()], np.dtype[np.int8 | np.uint8]]:
        if not self._has_zero_points:
            return np.array(0, np.int8)
        return np.array(_MIDDLE - (self._around[name].steps if name in self._around else 0), np.uint8)

    def _exact(self, op_type: str, inputs: tuple[str, ...], output: str, position: int) -> str:
        made = self.insert(op_type, inputs, output, position)
        self.exact.add(made)
        return made

    def _constant(self, name: str, value: float) -> str:
        return self._draft.add_constant(name, np.array(value, np.float32))


def moved_tensors(graph: Graph, placement: Placement) -> set[str]:
    """Return what operators that move values make in INT8."""
    nodes = (graph.nodes[position] for position, _ in placement.edges)
    return {name for node in nodes if is_moving(node) for name in node.outputs if name}
