"""Obstacles to good INT8 arithmetic in a model, in plain sentences, and the model's cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from edge.model.cost import ModelCost, cost_of_model, resolved_for_one
from edge.model.graph import Graph, load_graph
from edge.model.node import INTEGER_OPERATORS, QDQ_OPERATORS
from edge.model.opset import other_floats
from edge.model.qdq.faults import qdq_faults
from edge.model.trace import Tracer, Untraceable
from edge.types import HeadFamily, ModelSpec

__all__ = ["ModelReport", "report_on_model"]

_PER_CHANNEL_OPSET = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """Printed by `inspect` beside the spec: cost of one frame, and obstacles to INT8."""

    cost: ModelCost
    obstacles: tuple[str, ...]


def report_on_model(spec: ModelSpec) -> ModelReport:
    """Raise `ModelError` if the file cannot be read any more."""
    graph = load_graph(spec.path)
    resolved = resolved_for_one(graph, spec)
    cost = cost_of_model(resolved, spec)
    return ModelReport(
        cost=cost,
        obstacles=(*_of_operators(graph), *_of_layers(cost, resolved, spec)),
    )


def _of_operators(graph: Graph) -> Iterator[str]:
    """Yield a sentence for each kind of operator, or its version, that calibration or an engine has to mind."""
    counts = Counter(node.op_type for node in graph.nodes)
    if qdq := sum(counts[name] for name in QDQ_OPERATORS):
        yield f"It carries {qdq} Q/DQ nodes already: it brings its own scales."
    for name in INTEGER_OPERATORS:
        if counts[name]:
            yield (
                f"It has {counts[name]} {name} nodes, integer operators that TensorRT does not run: "
                "start from the float model, or from one with Q/DQ nodes."
            )
    for fault in qdq_faults(graph):
        yield f"{fault.sentence}."
    for domain in sorted({node.domain for node in graph.nodes} - {"", "ai.onnx"}):
        yield f"It has operators of the domain {domain}, which an engine may not know."
    if graph.opset < _PER_CHANNEL_OPSET:
        yield f"Its opset is {graph.opset}: Q/DQ with scales per channel needs {_PER_CHANNEL_OPSET}: convert it."
    if found := other_floats(graph):
        yield f"It computes in {', '.join(found)}: calibrate the float32 model, the engine chooses fp16 by itself."


def _of_layers(cost: ModelCost, resolved: Graph, spec: ModelSpec) -> Iterator[str]:
    """Yield the same of its convolutions, its output and its batch."""
    if cost.depthwise:
        share = sum(node.macs for node in cost.depthwise) / max(1, cost.macs)
        yield (
            f"{len(cost.depthwise)} of its convolutions are depthwise ({share:.0%} of the MACs): "
            "each channel has a range of its own, so that some of them may have to stay in float."
        )
    if not spec.is_quantized and _is_mixed(resolved, spec):
        yield (
            f'Its output "{spec.output_name}" joins boxes and scores in one tensor: one scale for both would erase '
            "the scores, so the head after the last convolutions stays in float."
        )
    if spec.batch == 1:
        yield "Its batch is fixed to 1: frames run one by one."


def _is_mixed(resolved: Graph, spec: ModelSpec) -> bool:
    """Return whether the output holds pixels and scores at once; raw offsets and scores differ as well."""
    axis = 1 if spec.family is HeadFamily.YOLOV8 else 2
    try:
        return len(Tracer(resolved).rows(spec.output_name, axis)) > 1
    except Untraceable:
        return False
