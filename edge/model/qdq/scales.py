"""From ranges to scales: one for each group of tensors that run into each other, one for each channel of a weight.

    scale = range / 127, symmetric, zero point 0; a group takes the largest range that is known in it.

A range is the largest absolute activation of a tensor. What Concat, MaxPool, Resize, Split and Slice make needs none:
it holds nothing larger than what goes in, and nothing else when all of it is known.

What is taken off a tensor in front of its Q, so that all levels of a symmetric int8 are used.

SiLU makes values from -0.28 up to its range: a symmetric int8 with zero point 0, which is all that TensorRT takes, has
half of its levels where nothing ever is. Values less a constant, the centre, lie evenly around zero, and their steps
are half as large. A convolution that reads them adds what is missing to its bias, exactly, as long as its padding,
which is zero, is minus the centre as well.

A centre is a whole number of steps: zeros stay zeros, and the levels are those of an asymmetric uint8.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.graph import Graph, Node
from edge.model.qdq.placement import Placement, gate_of, is_moving

__all__ = [
    "Centre",
    "LEVELS",
    "centres",
    "channel_axis",
    "dequantize_weight",
    "group_ranges",
    "missing_ranges",
    "padding_of",
    "quantize_weight",
    "scale_of",
]

LEVELS = 127
_LISTED = 8


def scale_of(amax: float) -> NDArray[np.float32]:
    """Return the scale of a range, never 0: a tensor that is 0 everywhere has scale 1."""
    return _positive(np.asarray(amax if amax > 0 else LEVELS))


def quantize_weight(weight: NDArray[Any], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return `weight` in int8 and its scales, one for each channel along `axis`; of a dead channel the scale is 1."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    amax = np.abs(weight).max(axis=others)
    scales = _positive(np.where(amax > 0, amax, LEVELS))
    spread = _spread(scales, axis, weight.ndim)
    return np.clip(np.rint(weight / spread), -LEVELS, LEVELS).astype(np.int8), scales


def dequantize_weight(values: NDArray[np.int8], scales: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Return what `quantize_weight` has made of a weight as the engine sees it."""
    return values * _spread(scales, axis, values.ndim)


def _spread(scales: NDArray[np.float32], axis: int, rank: int) -> NDArray[np.float32]:
    return scales.reshape([-1 if i == axis else 1 for i in range(rank)])


def _positive(amax: NDArray[Any]) -> NDArray[np.float32]:
    scales = (amax.astype(np.float64) / LEVELS).astype(np.float32)
    return np.asarray(np.maximum(scales, np.finfo(np.float32).tiny), np.float32)


def channel_axis(node: Node, rank: int) -> int:
    """Return the axis of the output channels in the weight of `node`."""
    match node.op_type:
        case "Conv":
            return 0
        case "Gemm":
            return 0 if node.attributes.get("transB", 0) else 1
        case "ConvTranspose":
            return 1
    return rank - 1


def group_ranges(graph: Graph, placement: Placement, ranges: Mapping[str, float]) -> dict[str, float]:
    """Return the range of every quantized tensor: the largest of its group.
    Raises `ModelError` if a range is missing or is no number that a scale can be made of.
    """
    if missing := missing_ranges(graph, placement, ranges):
        raise _missing_ranges(missing, ranges)
    found: dict[str, float] = {}
    for group in placement.groups:
        known = (_known(graph, name, ranges) for name in group)
        found |= dict.fromkeys(group, max((amax for amax in known if amax is not None), default=0.0))
    return found


def missing_ranges(graph: Graph, placement: Placement, ranges: Mapping[str, float]) -> list[str]:
    """Return the quantized tensors whose range is neither among `ranges` nor follows from them."""
    return [
        name
        for group in placement.groups
        for name in group
        if _known(graph, name, ranges) is None and not _is_covered(graph, name, group, ranges)
    ]


def _known(graph: Graph, name: str, ranges: Mapping[str, float]) -> float | None:
    """Return the range of `name`, or the largest of what it is chosen from."""
    if name in ranges:
        return _checked(name, ranges[name])
    maker = graph.producer(name)
    if maker is None or not is_moving(maker):
        return None
    sources = [_known(graph, source, ranges) for source in maker.inputs if graph.is_varying(source)]
    known = [amax for amax in sources if amax is not None]
    return max(known) if known and len(known) == len(sources) else None


def _is_covered(graph: Graph, name: str, group: Collection[str], ranges: Mapping[str, float]) -> bool:
    """Return whether the ranges of what holds all of `name` are known: a Concat's output, each part of a Split."""
    return any(
        all(out in ranges or (out in group and _is_covered(graph, out, group, ranges)) for out in node.outputs)
        for node in graph.consumers(name)
        if is_moving(node) and node.outputs
    )


def _checked(name: str, amax: float) -> float:
    if not (math.isfinite(amax) and amax >= 0):
        raise ModelError(f'range of "{name}": expected the largest absolute value of a tensor, got {amax}')
    return float(amax)


def _missing_ranges(missing: list[str], ranges: Mapping[str, float]) -> ModelError:
    lines = []
    for name in missing[:_LISTED]:
        near = difflib.get_close_matches(name, ranges, n=1)
        lines.append(f'"{name}"' + (f' (nearest known: "{near[0]}")' if near else ""))
    more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    return ModelError(
        f"no range is known of {', '.join(lines)}{more}",
        hint="ranges belong to one ONNX file, and tools that simplify a model rename its tensors: calibrate this one",
    )


_SWISH = -0.27846455  # the minimum of x * sigmoid(x), at x = -1.2784645
_LOWEST: Mapping[str, float] = {
    "Sigmoid": 0.0,
    "HardSigmoid": 0.0,
    "Softmax": 0.0,
    "Relu": 0.0,
    "HardSwish": -0.375,  # x * min(max(x + 3, 0), 6) / 6 at x = -1.5
    "Mish": -0.30885,  # x * tanh(log(1 + exp(x))) at x = -1.1924
}


def lowest_values(graph: Graph) -> dict[str, float]:
    """Return a value that nothing in a tensor is below, by tensor; what can be of any size is left out."""
    found: dict[str, float] = {}
    for node in graph.nodes:
        lowest = _lowest(graph, node, found)
        if lowest is not None:
            found |= dict.fromkeys((name for name in node.outputs if name), lowest)
    return found


def _lowest(graph: Graph, node: Node, found: Mapping[str, float]) -> float | None:
    if node.op_type in _LOWEST:
        return _LOWEST[node.op_type]
    if (gate := gate_of(graph, node)) is not None:
        return _SWISH if gate.op_type == "Sigmoid" else _hard_swish(gate)
    if node.op_type == "Clip":
        return _least(graph, node.input(1))
    if node.op_type == "Add":
        return _joined(_each(graph, node, found), sum)
    return _joined(_each(graph, node, found), min) if is_moving(node) else None


def _hard_swish(gate: Node) -> float:
    """Return the minimum of x * (alpha * x + beta), which that of x * clip(alpha * x + beta, 0, 1) is not below."""
    alpha, beta = (float(gate.attributes.get(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5)))
    return -(beta**2) / (4 * alpha) if alpha > 0 else -np.inf


def _each(graph: Graph, node: Node, found: Mapping[str, float]) -> Iterator[float | None]:
    """Yield the lowest value of each input that holds values; of Resize and Slice only the first one does."""
    for name in node.inputs if node.op_type in ("Add", "Concat") else node.inputs[:1]:
        yield found.get(name) if graph.is_varying(name) else _least(graph, name)


def _joined(lowest: Iterator[float | None], how: Callable[[list[float]], float]) -> float | None:
    values = list(lowest)
    known = [value for value in values if value is not None]
    return how(known) if known and len(known) == len(values) else None


def _least(graph: Graph, name: str) -> float | None:
    value = graph.constant(name) if name else None
    return None if value is None or not value.size or not np.isfinite(value).all() else float(value.min())


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

    `graph`: a float model. `placement`: of its pairs. `amax`: range of each quantized tensor, the same for all of a
    group. `is_padded`: also of what padded convolutions read, whose padding then has to be minus the centre.
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
