"""Where the rows of an output come from: walk back from it along one axis to the convolutions that make the values.

Shapes alone do not tell a head: keypoints, masks and angles hide behind the same layout. The routes do: which
arithmetic lies between each row and its convolution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge.model.graph import Graph, Node

__all__ = ["WHOLE", "OutputRows", "TracedRoute", "Tracer", "Untraceable", "rows_between"]

WHOLE = -1
_ROUTES_LIMIT = 256
_DEPTH_LIMIT = 150

# Operators that move values, or change only how they are stored.
_PASSIVE = frozenset(
    ("Identity", "Cast", "CastLike", "Dropout", "QuantizeLinear", "DequantizeLinear", "Expand", "Tile", "Pad")
)
_RESHAPING = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze"))
# fmt: off
_ARITHMETIC = frozenset((
    "Abs", "Add", "Ceil", "Clip", "Cos", "Div", "Exp", "Floor", "HardSigmoid", "Log", "Max", "Min", "Mod", "Mul", "Neg",
    "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sin", "Softplus", "Sqrt", "Sub", "Tanh", "Where",
))
# fmt: on


class Untraceable(Exception):  # noqa: N818 - says what the graph is, not that something failed
    """The origin of rows cannot be told from the graph; the text says why."""


@dataclass(frozen=True, slots=True)
class TracedRoute:
    """One way back from rows of the output to where their values are made."""

    operators: tuple[str, ...]  # arithmetic on the way, the nearest to the output first
    end: str  # operator that makes the values; `TopK:1` is its second output; `constant` and `input` are no operators
    source: str  # tensor that the values are made in
    first: int  # row of `source` that the first row comes from; `WHOLE` where all of it went into each row


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Neighbouring rows that take the same routes."""

    count: int
    routes: frozenset[TracedRoute]


def rows_between(rows: Sequence[OutputRows], start: int, stop: int) -> tuple[OutputRows, ...]:
    """Return rows `start` to `stop - 1`, split where needed."""
    taken, position = [], 0
    for part in rows:
        first, last = max(start, position), min(stop, position + part.count)
        if first < last:
            taken.append(OutputRows(last - first, _shifted(part.routes, first - position)))
        position += part.count
    return tuple(taken)


class Tracer:
    """Walks one graph with resolved shapes; remembers what it has seen."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._seen: dict[tuple[str, int | None], tuple[OutputRows, ...]] = {}

    def rows(self, tensor: str, axis: int | None, depth: int = 0) -> tuple[OutputRows, ...]:
        """Return the origin of `tensor` along `axis`; None: of all of it, as one row.
        Raises Untraceable if a shape on the way is unknown, or the ways are too many.
        """
        key = (tensor, axis)
        if key not in self._seen:
            if depth > _DEPTH_LIMIT:
                raise Untraceable(f"more than {_DEPTH_LIMIT} operators lie behind {tensor}")
            self._seen[key] = self._walk(tensor, axis, depth + 1)
        return self._seen[key]

    def _walk(self, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        node = self.graph.producer(tensor)
        if node is None or not self.graph.is_varying(tensor):
            end = "constant" if not self.graph.is_varying(tensor) else "input"
            return self._end(tensor, axis, end)
        if node.op_type in _ARITHMETIC:
            return self._operands(node, tensor, axis, depth)
        if node.op_type in _PASSIVE:
            return self._aligned(node.inputs[0], tensor, axis, depth)
        if node.op_type in _RESHAPING:
            return self._reshaped(node.inputs[0], tensor, axis, depth)
        mover = getattr(self, f"_{node.op_type.lower()}", None) if node.domain in ("", "ai.onnx") else None
        if mover is not None:
            moved: tuple[OutputRows, ...] = mover(node, tensor, axis, depth)
            return moved
        is_single = len(node.outputs) == 1
        return self._end(tensor, axis, node.op_type if is_single else f"{node.op_type}:{node.outputs.index(tensor)}")

    def _end(self, tensor: str, axis: int | None, end: str) -> tuple[OutputRows, ...]:
        count = 1 if axis is None else self._shape(tensor)[axis]
        return (OutputRows(count, frozenset((TracedRoute((), end, tensor, 0),))),)

    def _shape(self, tensor: str) -> tuple[int, ...]:
        shape = self.graph.shape(tensor)
        if shape is None and (value := self.graph.constant(tensor)) is not None:
            shape = value.shape
        if shape is None:
            raise Untraceable(f"the shape of {tensor} cannot be inferred")
        return shape

    def _operands(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        varying = [name for name in node.inputs if self.graph.is_varying(name)]
        merged = _merged([self._aligned(name, tensor, axis, depth) for name in dict.fromkeys(varying)])
        return tuple(OutputRows(part.count, _preceded(node.op_type, part.routes)) for part in merged)

    def _aligned(self, name: str, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        """Trace an operand that numpy's rules spread to the shape of `tensor`."""
        if axis is None:
            return self.rows(name, None, depth)
        shape, wide = self._shape(name), self._shape(tensor)
        own = axis - (len(wide) - len(shape))
        if own < 0 or shape[own] != wide[axis]:
            return self._spread(name, wide[axis], depth)
        return self.rows(name, own, depth)

    def _spread(self, name: str, count: int, depth: int) -> tuple[OutputRows, ...]:
        """Let all of tensor `name` be the origin of each of `count` rows."""
        whole = (part.routes for part in self.rows(name, None, depth))
        return tuple(OutputRows(count, frozenset(replace(route, first=WHOLE) for route in routes)) for routes in whole)

    def _reshaped(self, before: str, after: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        own = self._reshaped_axis(before, after, axis)
        if axis is None or own is not None:
            return self.rows(before, own, depth)
        return self._spread(before, self._shape(after)[axis], depth)

    def _reshaped_axis(self, before: str, after: str, axis: int | None) -> int | None:
        """Return the axis of `before` that becomes `axis` of `after` unchanged, None where there is no such."""
        if axis is None:
            return None
        old, new = self._shape(before), self._shape(after)
        wanted = (new[axis], math.prod(new[axis + 1 :]))
        return next((i for i in range(len(old)) if (old[i], math.prod(old[i + 1 :])) == wanted), None)

    def _transpose(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        permutation = node.attributes.get("perm") or tuple(reversed(range(len(self._shape(tensor)))))
        return self.rows(node.inputs[0], None if axis is None else permutation[axis], depth)

    def _concat(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        own = node.attributes["axis"] % len(self._shape(tensor))
        parts = [self.rows(name, axis, depth) for name in node.inputs]
        return tuple(rows for part in parts for rows in part) if own == axis else _merged(parts)

    def _split(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        rows = self.rows(node.inputs[0], axis, depth)
        if axis is None or node.attributes.get("axis", 0) % len(self._shape(tensor)) != axis:
            return rows
        sizes = [self._shape(output)[axis] for output in node.outputs]
        start = sum(sizes[: node.outputs.index(tensor)])
        return rows_between(rows, start, start + self._shape(tensor)[axis])

    def _slice(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        rows = self.rows(node.inputs[0], axis, depth)
        if axis is None:
            return rows
        count = self._shape(tensor)[axis]
        start = self._slice_start(node, axis, self._shape(node.inputs[0]), count)
        return rows_between(rows, start, start + count)

    def _slice_start(self, node: Node, axis: int, before: tuple[int, ...], count: int) -> int:
        starts, axes, steps = (self._numbers(node, i, name) for i, name in ((1, "starts"), (3, "axes"), (4, "steps")))
        own = [a % len(before) for a in (axes or range(len(before)))]
        if axis not in own[: len(starts or own)]:
            return 0
        position = own.index(axis)
        if steps is not None and steps[position] != 1:
            raise Untraceable(f"the slice {node.name} takes rows in steps of {steps[position]}")
        if starts is None:
            if count == before[axis]:
                return 0
            raise Untraceable(f"the slice {node.name} starts where the pixels say")
        start = starts[position]
        return max(0, start + before[axis] if start < 0 else start)

    def _numbers(self, node: Node, index: int, attribute: str) -> list[int] | None:
        """Return integers that newer opsets take as an input and older ones as an attribute."""
        if attribute in node.attributes:
            return list(node.attributes[attribute])
        value = self.graph.constant(node.input(index)) if node.input(index) else None
        return None if value is None else [int(number) for number in value.reshape(-1)]

    def _gather(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        data, index = node.inputs[:2]
        own = node.attributes.get("axis", 0) % len(self._shape(data))
        extra = len(self._shape(index))
        if axis is None or axis < own:
            return self.rows(data, axis, depth)
        if axis >= own + extra:
            return self.rows(data, axis - extra + 1, depth)
        picked = self.graph.constant(index)
        if picked is None or picked.ndim != 1:
            return self._end(tensor, axis, "Gather")
        rows = self.rows(data, own, depth)
        wrapped = [int(i) % self._shape(data)[own] for i in picked]
        return tuple(part for i in wrapped for part in rows_between(rows, i, i + 1))

    def _gatherelements(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        if axis is not None and node.attributes.get("axis", 0) % len(self._shape(tensor)) == axis:
            return self._end(tensor, axis, node.op_type)
        return self.rows(node.inputs[0], axis, depth)

    def _gathernd(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        data, index = node.inputs[:2]
        batch_axes = node.attributes.get("batch_dims", 0)
        kept = len(self._shape(index)) - 1
        if axis is None or axis < batch_axes:
            return self.rows(data, axis, depth)
        if axis < kept:
            return self._end(tensor, axis, node.op_type)
        return self.rows(data, batch_axes + self._shape(index)[-1] + axis - kept, depth)

    def _scatternd(self, node: Node, tensor: str, axis: int | None, depth: int) -> tuple[OutputRows, ...]:
        """Follow rows that are written anew as a whole, as `y[..., 0:2] = z` is exported; other writing ends here."""
        data, index, updates = node.inputs[:3]
        shape, places = self._shape(tensor), self.graph.constant(index)
        if axis is None or places is None or places.shape[-1] != len(shape) or places.ndim != len(shape) + 1:
            return self._end(tensor, axis, node.op_type)
        first, count = int(places[..., axis].min()), places.shape[axis]
        whole = np.moveaxis(np.indices((*shape[:axis], count, *shape[axis + 1 :])), 0, -1)
        whole[..., axis] += first
        if not np.array_equal(places, whole):
            return self._end(tensor, axis, node.op_type)
        rows = self.rows(data, axis, depth)
        rest = rows_between(rows, first + count, shape[axis])
        return (*rows_between(rows, 0, first), *self.rows(updates, axis, depth), *rest)


def _merged(parts: Sequence[tuple[OutputRows, ...]]) -> tuple[OutputRows, ...]:
    """Return rows that take all the routes of all parts; each part covers the same rows."""
    if len(parts) == 1:
        return parts[0]
    edges = sorted({edge for rows in parts for edge in itertools.accumulate((part.count for part in rows), initial=0)})
    merged = []
    for start, stop in itertools.pairwise(edges):
        routes = frozenset(route for rows in parts for part in rows_between(rows, start, stop) for route in part.routes)
        if len(routes) > _ROUTES_LIMIT:
            raise Untraceable(f"more than {_ROUTES_LIMIT} ways lead to the output")
        merged.append(OutputRows(stop - start, routes))
    return tuple(merged)


def _preceded(operator: str, routes: frozenset[TracedRoute]) -> frozenset[TracedRoute]:
    return frozenset(replace(route, operators=(operator, *route.operators)) for route in routes)


def _shifted(routes: frozenset[TracedRoute], offset: int) -> frozenset[TracedRoute]:
    if offset == 0:
        return routes
    return frozenset(route if route.first == WHOLE else replace(route, first=route.first + offset) for route in routes)
