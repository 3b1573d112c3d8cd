"""What a table is compared with: the tensors of a model, and the values that its input can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edge.model.graph import Graph, Node, load_graph
from edge.model.qdq.placement import called
from edge.types import ModelSpec, Preprocess

__all__ = ["ModelFacts", "WeightedNode", "facts_of_graph", "facts_of_model", "largest_input"]

_WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
_COMPARING = ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
_NOT_FLOAT = frozenset((*_COMPARING, "ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Shape", "Size"))
_INDEX_SECOND = ("TopK", "MaxPool", "Dropout")  # whose second output is indices or a mask
_FLOAT_TYPES = (1, 10, 11, 16)  # of ONNX's Cast: float32, float16, float64, bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedNode:
    """A convolution or matrix product, and the activations that it reads."""

    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model as lint sees it.

    Attributes:
        activations: float tensors that depend on the pixels, in the order of the graph, the input first.
        tensors: all names, of constants and integers too.
        weighted_outputs: of the convolutions and matrix products.
        scores: outputs of sigmoids behind the last convolutions, which are near 1 where an object was seen.
        node_names: all of them; a node without one is called by its first output.
    """

    name: str
    sha256: str
    preprocess: Preprocess
    input_name: str
    activations: tuple[str, ...]
    tensors: frozenset[str]
    weighted: tuple[WeightedNode, ...]
    weighted_outputs: tuple[str, ...]
    scores: tuple[str, ...]
    node_names: frozenset[str]


def facts_of_model(spec: ModelSpec) -> ModelFacts:
    """Return the facts of a model that was inspected.

    Raises:
        ModelError: if its file can no longer be read.
    """
    return facts_of_graph(load_graph(spec.path), spec)


def facts_of_graph(graph: Graph, spec: ModelSpec) -> ModelFacts:
    """Return the facts of a model whose inside is `graph`."""
    weighted = [node for node in graph.nodes if node.op_type in _WEIGHTED]
    return ModelFacts(
        name=spec.name,
        sha256=spec.sha256,
        preprocess=spec.preprocess,
        input_name=spec.input_name,
        activations=(spec.input_name, *_float_tensors(graph)),
        tensors=frozenset(name for node in graph.nodes for name in (*node.inputs, *node.outputs)),
        weighted=tuple(_weighted(node, graph) for node in weighted),
        weighted_outputs=tuple(node.outputs[0] for node in weighted),
        scores=tuple(dict.fromkeys(_scores(graph, spec.output_name))),
        node_names=frozenset(called(node) for node in graph.nodes),
    )


def largest_input(preprocess: Preprocess) -> float:
    """Return the largest |x| that a pixel can become."""
    ends = (
        abs(value * preprocess.scale - mean) / std
        for value in (0, 255)
        for mean, std in zip(preprocess.mean, preprocess.std, strict=True)
    )
    return max(ends)


def _float_tensors(graph: Graph) -> Iterator[str]:
    """Yield what nodes make of the pixels, other than integers (indices, of which end-to-end heads are full)."""
    integers: set[str] = set()
    for node in graph.nodes:
        for position, name in enumerate(node.outputs):
            if not name or not graph.is_varying(name):
                continue
            if _is_integer(node, position, [input_ in integers for input_ in _data(node) if graph.is_varying(input_)]):
                integers.add(name)
            else:
                yield name


def _is_integer(node: Node, position: int, are_integers: list[bool]) -> bool:
    if node.op_type == "Cast":
        return node.attributes["to"] not in _FLOAT_TYPES
    if node.op_type in _NOT_FLOAT or (position > 0 and node.op_type in _INDEX_SECOND):
        return True
    return bool(are_integers) and are_integers[0]


def _data(node: Node) -> tuple[str, ...]:
    """Return the inputs whose element type is that of the output."""
    if node.op_type == "Where":
        return node.inputs[1:]
    return node.inputs[:1] if node.op_type.startswith("Gather") else node.inputs


def _weighted(node: Node, graph: Graph) -> WeightedNode:
    return WeightedNode(name=called(node), inputs=tuple(name for name in node.inputs[:2] if graph.is_varying(name)))


def _scores(graph: Graph, output: str) -> Iterator[str]:
    seen, waiting = set(), [output]
    while waiting:
        tensor = waiting.pop()
        node = graph.producer(tensor)
        if node is None or tensor in seen or node.op_type in _WEIGHTED:
            continue
        seen.add(tensor)
        if node.op_type == "Sigmoid":
            yield tensor
        waiting.extend(node.inputs)
