"""Obstacles to good INT8 arithmetic in a model, in plain sentences, and the model's cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edge.model.cost import ModelCost, cost_of_model, resolved_for_one
from edge.model.graph import Graph, load_graph
from edge.model.node import INTEGER_OPERATORS, QDQ_OPERATORS
from edge.model.opset import other_floats
from edge.model.qdq.faults import qdq_faults
from edge.model.trace import Tracer, Untraceable
from edge.types import HeadFamily, ModelSpec

__all__ = ["ModelReport", "int8_obstacles", "report_on_model"]

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
        obstacles=int8_obstacles(graph, spec, resolved=resolved, cost=cost),
    )


def int8_obstacles(graph: Graph, spec: ModelSpec, *, resolved: Graph, cost: ModelCost) -> tuple[str, ...]:
    """Return one sentence for each thing that calibration or an engine has to mind; empty when there is none."""
    counts = Counter(node.op_type for node in graph.nodes)
    return (
        *_quantized_already(counts),
        *(f"{fault.sentence}." for fault in qdq_faults(graph)),
        *_foreign_operators(graph),
        *_old_opset(graph),
        *_half_weights(graph),
        *_depthwise(cost),
        *([] if spec.is_quantized else _mixed_output(resolved, spec)),
        *_fixed_batch(spec),
    )


def _quantized_already(counts: Counter[str]) -> list[str]:
    sentences = []
    if qdq := sum(counts[name] for name in QDQ_OPERATORS):
        sentences.append(f"It carries {qdq} Q/DQ nodes already: it brings its own scales.")
    for name in INTEGER_OPERATORS:
        if counts[name]:
            sentences.append(
                f"It has {counts[name]} {name} nodes, integer operators that TensorRT does not run: "
                "start from the float model, or from one with Q/DQ nodes."
            )
    return sentences


def _foreign_operators(graph: Graph) -> list[str]:
    domains = sorted({node.domain for node in graph.nodes} - {"", "ai.onnx"})
    return [f"It has operators of the domain {domain}, which an engine may not know." for domain in domains]


def _old_opset(graph: Graph) -> list[str]:
    if graph.opset >= _PER_CHANNEL_OPSET:
        return []
    return [f"Its opset is {graph.opset}: Q/DQ with scales per channel needs {_PER_CHANNEL_OPSET}: convert it."]


def _half_weights(graph: Graph) -> list[str]:
    if not (found := other_floats(graph)):
        return []
    return [f"It computes in {', '.join(found)}: calibrate the float32 model, the engine chooses fp16 by itself."]


def _depthwise(cost: ModelCost) -> list[str]:
    if not cost.depthwise:
        return []
    share = sum(node.macs for node in cost.depthwise) / max(1, cost.macs)
    return [
        f"{len(cost.depthwise)} of its convolutions are depthwise ({share:.0%} of the MACs): "
        "each channel has a range of its own, so that some of them may have to stay in float."
    ]


def _mixed_output(resolved: Graph, spec: ModelSpec) -> list[str]:
    """Name the output that holds pixels and scores at once; raw offsets and scores differ as well."""
    axis = 1 if spec.family is HeadFamily.YOLOV8 else 2
    try:
        kinds = len(Tracer(resolved).rows(spec.output_name, axis))
    except Untraceable:
        return []
    if kinds < 2:
        return []
    return [
        f'Its output "{spec.output_name}" joins boxes and scores in one tensor: one scale for both would erase the '
        "scores, so the head after the last convolutions stays in float."
    ]


def _fixed_batch(spec: ModelSpec) -> list[str]:
    if spec.batch is None:
        return []
    return [
        f"Its batch is fixed to {spec.batch}: frames run one by one, "
        "or the graph is re-batched where `engine.rows_per_request` asks for it."
    ]
