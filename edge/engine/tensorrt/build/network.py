"""The network that TensorRT's parser makes of an ONNX file, and its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.plan import PlanTensor
from edge.errors import EngineError, ModelError
from edge.model.graph import Graph, graph_from_bytes

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, ILogger, INetworkDefinition, ITensor, OnnxParser, ParserError

__all__ = ["infos_of", "network_tensors", "parsed_network", "tensor_names"]

_DTYPE_OF = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
    "BF16": "bfloat16",
}
_ERRORS_TOLD = 3


def parsed_network(
    library: TensorRtLibrary, builder: Builder, logger: ILogger, content: bytes, *, name: str, is_strongly_typed: bool
) -> INetworkDefinition:
    """Return the network of the ONNX file `content`; `name` names it in errors.

    Raises:
        EngineError: naming each node that TensorRT's parser refuses.
    """
    network = builder.create_network(_flags(library, is_strongly_typed=is_strongly_typed))
    parser: OnnxParser = library.trt.OnnxParser(network, logger)
    if not parser.parse(content):
        problems = list(_problems(library, parser, content))
        told = "; ".join(problems[:_ERRORS_TOLD])
        rest = f"; {len(problems) - _ERRORS_TOLD} more" if len(problems) > _ERRORS_TOLD else ""
        raise EngineError(
            f"{name}: {library.name} {library.version} cannot read it: {told or 'its parser gave no reason'}{rest}",
            hint="export it for a newer opset, or use kind: auto with another engine",
        )
    return network


def network_tensors(network: INetworkDefinition) -> Iterator[ITensor]:
    """Yield inputs, and outputs of layers; what a layer has in place of an output that nobody reads is left out."""
    for index in range(network.num_inputs):
        yield network.get_input(index)
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        for index in range(layer.num_outputs):
            tensor = layer.get_output(index)
            if tensor is not None:
                yield tensor


def tensor_names(network: INetworkDefinition) -> frozenset[str]:
    """Return the names of `network_tensors`."""
    return frozenset(tensor.name for tensor in network_tensors(network))


def infos_of(network: INetworkDefinition) -> tuple[tuple[PlanTensor, ...], tuple[PlanTensor, ...]]:
    """Return the network's inputs and outputs."""
    inputs = tuple(_info(network.get_input(index)) for index in range(network.num_inputs))
    outputs = tuple(_info(network.get_output(index)) for index in range(network.num_outputs))
    return inputs, outputs


def _info(tensor: ITensor) -> PlanTensor:
    kind = tensor.dtype.name
    return PlanTensor(name=tensor.name, shape=tuple(tensor.shape), dtype=_DTYPE_OF.get(kind, kind.lower()))


def _flags(library: TensorRtLibrary, *, is_strongly_typed: bool) -> int:
    kinds, abilities, flags = library.trt.NetworkDefinitionCreationFlag, library.abilities, 0
    if abilities.has_explicit_batch_flag and not abilities.takes_int8_weights:  # TensorRT 10 calls it deprecated
        flags |= 1 << int(kinds.EXPLICIT_BATCH)
    if is_strongly_typed and not abilities.is_always_strongly_typed:
        flags |= 1 << int(kinds.STRONGLY_TYPED)
    return flags


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    name: str
    operator: str


def _problems(library: TensorRtLibrary, parser: OnnxParser, content: bytes) -> Iterator[str]:
    graph = _graph(content)
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        place = _place(library, error, graph)
        where = f'{place.operator} "{place.name}": ' if place.name or place.operator else ""
        yield f"{where}{error.desc()}"


def _place(library: TensorRtLibrary, error: ParserError, graph: Graph | None) -> _Place:
    if library.abilities.has_node_of_error:
        return _Place(name=str(error.node_name()), operator=str(error.node_operator()))
    number = int(error.node())
    if graph is None or not 0 <= number < len(graph.nodes):
        return _Place(name="", operator="")
    node = graph.nodes[number]
    return _Place(name=node.name or node.outputs[0], operator=node.op_type)


def _graph(content: bytes) -> Graph | None:
    try:
        return graph_from_bytes(content, "model")
    except ModelError:
        return None
