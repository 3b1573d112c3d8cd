"""What is taken off a tensor in front of its Q, so that all levels of a symmetric int8 are used.

SiLU makes values from -0.28 up to its range: a symmetric int8 with zero point 0, which is all that TensorRT takes, has
half of its levels where nothing ever is. Values less a constant, the centre, lie evenly around zero, and their steps
are half as large. A convolution that reads them adds what is missing to its bias, exactly, as long as its padding,
which is zero, is minus the centre as well.

A centre is a whole number of steps: zeros stay zeros, and the levels are those of an asymmetric uint8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge.model.graph import Graph, Node
from edge.model.qdq.lowest import lowest_values
from edge.model.qdq.placement import Placement, is_moving
from edge.model.qdq.scales import scale_of

__all__ = ["Centre", "centres", "padding_of"]

_WITHOUT_AUTO_PAD = (None, "NOTSET", "VALID")
_WORTH = 0.9  # of the steps without: less is not worth an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """How a group of tensors is quantized around `value`, which is `steps` steps; each less it is within `range_`."""

    value: float
    steps: int
    range_: float


def centres(
    graph: Graph, placement: Placement, amax: Mapping[str, float], *, is_padded: bool = False
) -> dict[str, Centre]:
    """Return the centre of each quantized tensor that is better off with one.

    Args:
        graph: a float model.
        placement: of its pairs.
        amax: range of each quantized tensor, the same for all of a group.
        is_padded: also of what padded convolutions read, whose padding then has to be minus the centre.
    """
    lowest = lowest_values(graph)
    readers: dict[str, list[Node]] = {}
    for position, index in placement.edges:
        node = graph.nodes[position]
        readers.setdefault(node.inputs[index], []).append(node)
    found: dict[str, Centre] = {}
    for group in placement.groups:
        read_by = [node for name in group for node in readers[name]]
        if lowest.keys() >= set(group) and all(_takes_centred(graph, node, is_padded=is_padded) for node in read_by):
            centre = _centre(min(0.0, *(lowest[name] for name in group)), amax[group[0]])
            found |= {} if centre is None else dict.fromkeys(group, centre)
    return found


def padding_of(node: Node) -> tuple[int, ...]:
    """Return the widths that a convolution pads by, at the beginning and then at the end of each axis; () for none."""
    pads = tuple(node.attributes.get("pads", ())) if node.attributes.get("auto_pad") in (None, "NOTSET") else ()
    return pads if any(pads) else ()


def _centre(lowest: float, amax: float) -> Centre | None:
    range_ = (amax - lowest) / 2
    if not 0 < range_ < _WORTH * amax:
        return None
    step = float(scale_of(range_))
    steps = round((amax + lowest) / 2 / step)
    return Centre(value=steps * step, steps=steps, range_=range_)


def _takes_centred(graph: Graph, node: Node, *, is_padded: bool) -> bool:
    """Return whether `node` can read values less a centre: convolutions, whose bias makes up for it."""
    if node.op_type != "Conv":
        return node.op_type == "Add" or is_moving(node)
    is_clear = node.attributes.get("auto_pad") in _WITHOUT_AUTO_PAD and (is_padded or not padding_of(node))
    return is_clear and all(graph.constant(name) is not None for name in node.inputs[1:] if name)
