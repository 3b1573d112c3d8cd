"""From ranges to scales: one for each group of tensors that run into each other, one for each channel of a weight.

    scale = range / 127, symmetric, zero point 0; a group takes the largest range that is known in it.

A range is the largest absolute activation of a tensor. What Concat, MaxPool, Resize, Split and Slice make needs none:
it holds nothing larger than what goes in, and nothing else when all of it is known.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.graph import Graph, Node
from edge.model.qdq.placement import Placement, is_moving

__all__ = [
    "LEVELS",
    "channel_axis",
    "dequantize_weight",
    "group_ranges",
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

    Raises:
        ModelError: if a range is missing or is no number that a scale can be made of.
    """
    found: dict[str, float] = {}
    missing: list[str] = []
    for group in placement.groups:
        known = {name: _known(graph, name, ranges) for name in group}
        missing += [name for name in group if known[name] is None and not _is_covered(graph, name, group, ranges)]
        largest = max((amax for amax in known.values() if amax is not None), default=0.0)
        found |= dict.fromkeys(group, largest)
    if missing:
        raise _missing_ranges(missing, ranges)
    return found


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


def _is_covered(graph: Graph, name: str, group: Iterable[str], ranges: Mapping[str, float]) -> bool:
    """Return whether the range of something that holds all of `name` is known."""
    made = {out for node in graph.consumers(name) if is_moving(node) and len(node.outputs) == 1 for out in node.outputs}
    inside = made.intersection(group) | made.intersection(ranges)
    return any(out in ranges or _is_covered(graph, out, group, ranges) for out in inside)


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
