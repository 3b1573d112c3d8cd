"""The network that TensorRT's parser makes of an ONNX file, its shapes, its scales, and its layers in float."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.plan import PlanTensor
from edge.errors import EngineError, ModelError
from edge.model.graph import Graph, graph_from_bytes
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import (
        Builder,
        IBuilderConfig,
        ILayer,
        ILogger,
        INetworkDefinition,
        ITensor,
        OnnxParser,
        ParserError,
    )

__all__ = [
    "give_cache",
    "infos_of",
    "keep_float",
    "network_tensors",
    "parsed_network",
    "require_taken",
    "set_ranges",
    "set_shapes",
    "tensor_names",
]


def set_shapes(
    builder: Builder,
    config: IBuilderConfig,
    network: INetworkDefinition,
    spec: ModelSpec,
    *,
    max_batch: int,
    is_fixed: bool = False,
) -> int | None:
    """State the shapes of the network's input, and return the batch that every inference has; None: 1 to `max_batch`.

    Args:
        config: of the build; gets an optimisation profile where the input is dynamic.
        network: with one input.
        max_batch: most rows at once; a model of a fixed batch takes its own instead.
        is_fixed: make a dynamic batch `max_batch`, always, as a DLA core wants it.

    Raises `EngineError` if the input is not what `spec` says.
    """
    tensor, size = network.get_input(0), spec.preprocess.size
    if tensor.name != spec.input_name or network.num_inputs != 1:
        raise EngineError(f'{spec.name}: expected the one input "{spec.input_name}", TensorRT found "{tensor.name}"')
    shape = tuple(tensor.shape)
    batch = shape[0] if shape[0] > 0 else None
    rest = (3, size.height, size.width)
    if len(shape) != 4 or any(found not in (-1, wanted) for found, wanted in zip(shape[1:], rest, strict=True)):
        raise EngineError(
            f'{spec.name}: "{tensor.name}" is (B, {rest[0]}, {rest[1]}, {rest[2]}), TensorRT found {shape}'
        )
    if is_fixed and batch is None:
        batch = max_batch
        tensor.shape = (batch, *rest)
    elif -1 in shape:
        least, most = (batch or 1, *rest), (batch or max_batch, *rest)
        profile = builder.create_optimization_profile()
        profile.set_shape(tensor.name, least, most, most)
        config.add_optimization_profile(profile)
    return batch


CALIBRATOR = "EntropyCalibration2"  # the one whose scales a DLA core takes, too


def give_cache(library: TensorRtLibrary, config: IBuilderConfig, cache: bytes) -> Any:
    """Return the calibrator that hands over `cache`, with the header of this library; it has to outlive the build."""
    base: Any = library.trt.IInt8EntropyCalibrator2

    class _Calibrator(base):  # type: ignore[misc]  # its base is known when the library is
        """Hands over the cache; has no images, and remembers having been asked for some."""

        def __init__(self) -> None:
            base.__init__(self)
            self.reads = 0
            self.batches_asked_for = 0

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: list[str]) -> None:
            self.batches_asked_for += 1

        def read_calibration_cache(self) -> bytes:
            self.reads += 1
            return cache

        def write_calibration_cache(self, content: Any) -> None:
            """Keep nothing: the table is where scales come from."""

    config.int8_calibrator = calibrator = _Calibrator()
    return calibrator


def require_taken(calibrator: Any, name: str) -> None:
    """Refuse a build for which TensorRT wanted to calibrate itself: its scales are then not the table's.

    Raises `EngineError`: then, or if it never asked the `calibrator` of `give_cache` for the cache.
    """
    if calibrator.batches_asked_for:
        raise EngineError(
            f"{name}: TensorRT did not take the calibration cache, and asked for images instead",
            hint="use engine.route: implicit-ranges, or qdq-weak",
        )
    if not calibrator.reads:
        raise EngineError(f"{name}: TensorRT did not ask for the calibration cache", hint="use engine.route: qdq-weak")


def set_ranges(network: INetworkDefinition, ranges: Mapping[str, float], name: str) -> None:
    """Set the range of each tensor that the table knows, `ranges` being the largest absolute values.

    Raises `EngineError` naming the tensor whose range TensorRT refuses.
    """
    for tensor in network_tensors(network):
        if tensor.name in ranges and not tensor.set_dynamic_range(-ranges[tensor.name], ranges[tensor.name]):
            raise EngineError(f'{name}: TensorRT refuses the range {ranges[tensor.name]:g} of "{tensor.name}"')


def keep_float(
    library: TensorRtLibrary, config: IBuilderConfig, network: INetworkDefinition, names: Collection[str]
) -> tuple[str, ...]:
    """Bind layers to float16 that `names` names, and those that read a tensor of such a name; return names of none.

    The parser gives a node's name to the layer that computes it; a node without one is called by its first output.
    """
    trt, wanted, found = library.trt, set(names), set[str]()
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        mine = wanted.intersection((layer.name, *_tensors(layer)))
        if mine:
            layer.precision = trt.float16
            found |= mine
    if names:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return tuple(sorted(wanted - found))


def _tensors(layer: ILayer) -> Iterator[str]:
    """Yield what a layer reads and makes; what is left out has no tensor."""
    tensors = [layer.get_input(index) for index in range(layer.num_inputs)]
    tensors += [layer.get_output(index) for index in range(layer.num_outputs)]
    yield from (tensor.name for tensor in tensors if tensor is not None)


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
_SUPPRESSION = "NonMaxSuppression"


def parsed_network(
    library: TensorRtLibrary, builder: Builder, logger: ILogger, content: bytes, *, name: str, is_strongly_typed: bool
) -> INetworkDefinition:
    """Raises `EngineError` naming each node that TensorRT's parser refuses."""
    network = builder.create_network(_flags(library, is_strongly_typed=is_strongly_typed))
    parser: OnnxParser = library.trt.OnnxParser(network, logger)
    if not parser.parse(content):
        problems = list(_problems(library, parser, content))
        told = "; ".join(problems[:_ERRORS_TOLD])
        rest = f"; {len(problems) - _ERRORS_TOLD} more" if len(problems) > _ERRORS_TOLD else ""
        raise EngineError(
            f"{name}: {library.name} {library.version} cannot read it: {told or 'its parser gave no reason'}{rest}",
            hint=_hint(content),
        )
    return network


def network_tensors(network: INetworkDefinition) -> Iterator[ITensor]:
    """Yield inputs, and outputs of layers; what a layer has in place of an unread output is left out."""
    for index in range(network.num_inputs):
        yield network.get_input(index)
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        for index in range(layer.num_outputs):
            tensor = layer.get_output(index)
            if tensor is not None:
                yield tensor


def tensor_names(network: INetworkDefinition) -> frozenset[str]:
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


def _hint(content: bytes) -> str:
    graph = _graph(content)
    others = "name another engine in engine.kind: edge-runtime doctor tells which run here"
    if graph is not None and any("NMS" in node.op_type or node.op_type == _SUPPRESSION for node in graph.nodes):
        return f"export it without suppression inside (without nms=True, --end2end), it is done here; or {others}"
    return others


def _problems(library: TensorRtLibrary, parser: OnnxParser, content: bytes) -> Iterator[str]:
    graph = _graph(content)
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        yield f"{_node_of(library, error, graph)}{error.desc()}"


def _node_of(library: TensorRtLibrary, error: ParserError, graph: Graph | None) -> str:
    """Return operator and name of the node that an error is of, and a colon; empty where that is not known."""
    if library.abilities.has_node_of_error:
        name, operator = str(error.node_name()), str(error.node_operator())
        return f'{operator} "{name}": ' if name or operator else ""
    number = int(error.node())
    if graph is None or not 0 <= number < len(graph.nodes):
        return ""
    node = graph.nodes[number]
    return f'{node.op_type} "{node.name or node.outputs[0]}": '


def _graph(content: bytes) -> Graph | None:
    try:
        return graph_from_bytes(content, "model")
    except ModelError:
        return None
