"""Faults of the Q/DQ pairs that a model brings: pairs without a reader, and pairs that TensorRT does not take.

TensorRT takes int8 with zero point 0, one scale for an activation, and for a weight one scale or one for each output
channel. Its parsers refuse the rest, or it computes the layer in float (`tests/integration/tensorrt`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge.errors import ModelError
from edge.model.graph import Graph, Node
from edge.model.node import QDQ_OPERATORS
from edge.model.qdq.placement import WEIGHTED, called
from edge.model.qdq.read import INTEGERS, Scaling, scaling_of
from edge.model.qdq.scales import channel_axis

__all__ = ["SYMMETRIC_HINT", "QdqFault", "qdq_faults", "require_sound_pairs"]

_QUANTIZE, _DEQUANTIZE = QDQ_OPERATORS
_HALF_A_SCORE = 0.5
_NAMED = 3
_FROM_0_TO_1 = frozenset(("HardSigmoid", "Sigmoid", "Softmax"))
_WHOLE = frozenset(
    (*QDQ_OPERATORS, "Cast", "Clip", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
)
_PARTS = frozenset(("Gather", "GatherElements", "GatherND", "MaxPool", "ReduceMax", "Slice", "Split", "TopK"))
SYMMETRIC_HINT = (
    "quantize it again, symmetric and with the last Concat in float; or take its pairs out with edge-deploy table "
    "import, and put them where they belong with table qdq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QdqFault:
    """One thing that is wrong, and the nodes that have it; `is_fatal`: no engine makes detections of it."""

    problem: str
    nodes: tuple[str, ...]
    is_fatal: bool

    @property
    def sentence(self) -> str:
        more = f" and {len(self.nodes) - _NAMED} more" if len(self.nodes) > _NAMED else ""
        return f"{', '.join(self.nodes[:_NAMED])}{more}: {self.problem}"


def qdq_faults(graph: Graph) -> tuple[QdqFault, ...]:
    """Return what is wrong with the pairs of a model, the fatal first; empty for a float model."""
    found: dict[tuple[bool, str], list[str]] = {}
    scored, mixed = _holding_scores(graph)
    for node in graph.nodes:
        if node.op_type in QDQ_OPERATORS:
            scaling = scaling_of(graph, node)
            holds_scores = node.op_type == _QUANTIZE and node.inputs[0] in scored | mixed
            maker = graph.producer(node.inputs[0])
            fatal = [(True, what, detail) for what, detail in _fatal(graph, node, scaling, holds_scores=holds_scores)]
            for is_fatal, what, detail in fatal or [(False, one, "") for one in _not_symmetric(graph, node, scaling)]:
                named = found.setdefault((is_fatal, what), [])
                if maker is None or _name(maker, detail) not in named:  # a pair is named once, by its Q
                    named.append(_name(node, detail))
    faults = [QdqFault(problem=what, nodes=tuple(nodes), is_fatal=fatal) for (fatal, what), nodes in found.items()]
    return tuple(sorted(faults, key=lambda fault: not fault.is_fatal))


def require_sound_pairs(graph: Graph, path: Path) -> None:
    """Pass if an engine can make detections of a model by its own pairs. Raises ModelError naming the nodes, if not."""
    fatal = [fault.sentence for fault in qdq_faults(graph) if fault.is_fatal]
    if fatal:
        raise ModelError(f"{path}: its Q/DQ pairs give no detections: {'; '.join(fatal)}", hint=SYMMETRIC_HINT)


def _name(node: Node, detail: str) -> str:
    return f'{node.op_type} "{called(node)}"{detail}'


def _fatal(graph: Graph, node: Node, scaling: Scaling, *, holds_scores: bool) -> Iterator[tuple[str, str]]:
    scale = scaling.scale
    if scale is None:
        return
    if not scaling.is_positive:
        worst = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)[0]
        yield "expected scales that are finite and above 0", f" (scale {worst:.3g})"
    elif holds_scores and scale.max() > _HALF_A_SCORE:
        yield (
            "a level is wider than half a score, so that scores from 0 to 1 are rounded away; boxes and scores need "
            "scales of their own",
            f" (level {scale.max():.3g})",
        )
    if (length := _channels(graph, node, scaling)) is not None and length != scale.size:
        yield "expected a scale for each channel", f" ({scale.size} scales, {length} channels on axis {scaling.axis})"


def _channels(graph: Graph, node: Node, scaling: Scaling) -> int | None:
    """Return how many channels the scales are of, where they are of channels and that is known."""
    shape = graph.shape(node.inputs[0])
    if scaling.is_blocked or scaling.is_single or shape is None or not -len(shape) <= scaling.axis < len(shape):
        return None
    return shape[scaling.axis]


def _not_symmetric(graph: Graph, node: Node, scaling: Scaling) -> Iterator[str]:
    is_activation = graph.is_varying(node.inputs[0])
    if scaling.scale is None:
        yield "its scales are computed, TensorRT takes stored ones"
        return
    if scaling.is_blocked:
        yield "its scales are of blocks, TensorRT takes one for a tensor or for each output channel in INT8"
    if scaling.is_implied and scaling.kind == "uint8":
        yield "it states no zero point, which ONNX takes for uint8 and TensorRT for int8"
    elif scaling.kind != "int8":
        yield f"it has {scaling.kind}, TensorRT takes int8"
    if scaling.kind in INTEGERS and scaling.offset.any():
        yield "its zero point is not 0, TensorRT takes symmetric pairs"
    readers = {reader.op_type for reader in graph.consumers(node.outputs[0])}
    if node.op_type == _QUANTIZE and (others := sorted(readers.intersection(WEIGHTED))):
        yield f"{others[0]} reads its integers, expected a DequantizeLinear between"
    if is_activation and not scaling.is_single:
        yield "an activation has a scale for each channel, TensorRT takes one"
    elif not scaling.is_single and not scaling.is_blocked:
        yield from _beside_the_axis(graph, node, scaling)


def _beside_the_axis(graph: Graph, node: Node, scaling: Scaling) -> Iterator[str]:
    shape = graph.shape(node.inputs[0])
    for reader in graph.consumers(node.outputs[0]):
        if shape is None or reader.op_type not in WEIGHTED or reader.input(1) != node.outputs[0]:
            continue
        expected = channel_axis(reader, len(shape))
        if scaling.axis % len(shape) != expected:
            yield (
                f"its scales lie on axis {scaling.axis}, the output channels of {reader.op_type} on axis {expected}: "
                "TensorRT refuses that, or leaves the layer in float"
            )


def _holding_scores(graph: Graph) -> tuple[set[str], set[str]]:
    """Return the tensors that hold nothing but values from 0 to 1, and those that hold such beside others."""
    scored: set[str] = set()
    mixed: set[str] = set()
    for node in graph.nodes:
        data = [name for name in node.inputs if graph.is_varying(name)]
        made = node.outputs[:1] if node.op_type == "TopK" else node.outputs  # the second are indices
        if node.op_type in _FROM_0_TO_1:
            scored.update(made)
        elif node.op_type == "Concat" and not (scored | mixed).isdisjoint(data):
            (scored if scored.issuperset(data) else mixed).update(made)
        elif node.op_type in (_WHOLE | _PARTS) and node.inputs[0] in scored:
            scored.update(made)
        elif node.op_type in _WHOLE and node.inputs[0] in mixed:
            mixed.update(made)
        elif node.op_type == "Mul" and len(data) == len(node.inputs) and scored.issuperset(data):
            scored.update(made)
    return scored, mixed
