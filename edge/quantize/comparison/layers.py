"""The weighted layers of a model, as a comparison looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.evaluate.layers import ComparedLayer, Quantization
from edge.model.cost import cost_of_model
from edge.model.graph import Graph, Node
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.placement import called
from edge.model.qdq.scales import LEVELS, scale_of
from edge.types import ModelSpec

__all__ = ["compared_layers", "watched_tensors"]


def compared_layers(
    graph: Graph, spec: ModelSpec, quantized: QdqModel, copies: Mapping[str, str]
) -> tuple[ComparedLayer, ...]:
    """Return the weighted layers in the order of the model.

    Args:
        graph: of the float model, with its shapes.
        spec: of it.
        quantized: the same in INT8.
        copies: what the same layer in float on the same input is called in the INT8 model, by layer.
    """
    macs = {node.output: node.macs for node in cost_of_model(graph, spec).nodes}
    weighted = {*quantized.quantized_nodes, *quantized.float_nodes}
    return tuple(
        ComparedLayer(
            name=called(node),
            op_type=node.op_type,
            input_=_activation(node, graph),
            output=node.outputs[0],
            macs=macs.get(node.outputs[0], 0),
            quantization=_quantization(_activation(node, graph), node, quantized),
            float_copy=copies.get(called(node)),
        )
        for node in graph.nodes
        if called(node) in weighted
    )


def _activation(node: Node, graph: Graph) -> str:
    """Return the activation that `node` reads; the first one where it multiplies two."""
    return next(name for name in node.inputs if graph.is_varying(name))


def _quantization(read: str, node: Node, quantized: QdqModel) -> Quantization | None:
    if called(node) not in quantized.quantized_nodes:
        return None
    around = quantized.centres.get(read)
    step = float(scale_of(quantized.ranges[read] if around is None else around.range_))
    return Quantization(range_=max(quantized.ranges[read], LEVELS * step), step=step)


def watched_tensors(layers: Sequence[ComparedLayer]) -> tuple[str, ...]:
    """Return what the layers read and make, each once."""
    return tuple(dict.fromkeys(name for layer in layers for name in (layer.input_, layer.output)))
