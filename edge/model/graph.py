"""The inside of an ONNX file, in our own words.

`load_graph` reads and checks a file, `read_model_file` keeps its digest and its bytes as well. `Graph` is a read-only
view: nodes, who makes and who reads a tensor, constants as numpy, shapes where they are known. Inferring shapes and
rewriting is in `edge.model.editor`.
"""

from __future__ import annotations

import copy
import functools
import graphlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.mistaken import is_text, mistaken
from edge.model.binding import (
    MOST_EXTERNAL_BYTES,
    decode_error,
    external_locations,
    load_external,
    onnx_module,
    reference_evaluator,
)
from edge.model.node import Dim, Node, TensorInfo
from edge.reading import read_file

if TYPE_CHECKING:
    from edge.model.binding import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = [
    "Dim",
    "Graph",
    "ModelFile",
    "Node",
    "TensorInfo",
    "graph_from_bytes",
    "graph_of_proto",
    "infer_shapes",
    "load_graph",
    "node_proto",
    "parsed",
    "read_model_bytes",
    "read_model_file",
    "tensor_proto",
]


def sort_nodes(proto: Any) -> None:
    """Put each node of an ONNX `ModelProto` behind those it reads from, as ONNX demands.

    Some fp16 converters append their casts at the end.
    """
    made = {name: position for position, node in enumerate(proto.graph.node) for name in node.output if name}
    if all(made.get(name, -1) < i for i, node in enumerate(proto.graph.node) for name in node.input):
        return
    needs = {i: {made[name] for name in node.input if name in made} for i, node in enumerate(proto.graph.node)}
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError:
        return  # the checker says so
    nodes = copy.deepcopy([proto.graph.node[i] for i in order])
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


Array = NDArray[Any]

_FOLDED_LIMIT = 1_000_000
_RESULT_LIMIT, _SHAPE_LIMIT = 16 * _FOLDED_LIMIT, 64  # of elements: of a result (Expand, Tile), of what states a shape
_LARGEST_MESSAGE_BYTES = 2**31


class Graph:
    """A checked ONNX model, read-only; subgraphs (If, Loop) are not entered."""

    def __init__(self, proto: ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self.proto = proto
        self._shapes = dict(shapes or {})
        self._initializers: dict[str, TensorProto] = {tensor.name: tensor for tensor in proto.graph.initializer}
        self.nodes: tuple[Node, ...] = tuple(_node(node) for node in proto.graph.node)
        self._positions = {output: i for i, node in enumerate(self.nodes) for output in node.outputs if output}
        self._folded: dict[str, Array | None] = {}

    @functools.cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Inputs to feed; weights that old exporters list among the inputs are left out."""
        infos = (_tensor_info(value) for value in self.proto.graph.input)
        return tuple(info for info in infos if info.name not in self._initializers)

    @functools.cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_tensor_info(value) for value in self.proto.graph.output)

    @functools.cached_property
    def metadata(self) -> Mapping[str, str]:
        """The key-value texts that an exporter left in the file."""
        return {entry.key: entry.value for entry in self.proto.metadata_props}

    @property
    def opset(self) -> int:
        """Version of the standard operator set; 0 when the file imports none."""
        return next((entry.version for entry in self.proto.opset_import if entry.domain in ("", "ai.onnx")), 0)

    @property
    def made_by(self) -> str:
        return f"{self.proto.producer_name} {self.proto.producer_version}".strip()

    @functools.cached_property
    def _consumers(self) -> Mapping[str, tuple[Node, ...]]:
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.inputs):
                readers.setdefault(tensor, []).append(node)
        return {tensor: tuple(nodes) for tensor, nodes in readers.items()}

    @functools.cached_property
    def _varying(self) -> frozenset[str]:
        """Tensors that depend on the pixels, not only on their shape."""
        varying = {info.name for info in self.inputs}
        for node in self.nodes:
            if node.op_type != "Shape" and any(tensor in varying for tensor in node.inputs):
                varying.update(node.outputs)
        return frozenset(varying)

    def producer(self, tensor: str) -> Node | None:
        """Return the node that makes `tensor`; None for inputs and initializers."""
        position = self._positions.get(tensor)
        return None if position is None else self.nodes[position]

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        return self._consumers.get(tensor, ())

    def ancestors(self, tensor: str) -> Iterator[Node]:
        """Yield every node that `tensor` depends on, nearest first, each once."""
        seen: set[int] = set()
        waiting = [tensor]
        while waiting:
            node = self.producer(waiting.pop(0))
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting.extend(node.inputs)

    def initializer(self, name: str) -> Array | None:
        tensor = self._initializers.get(name)
        return None if tensor is None else _array(tensor)

    def initializer_shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a stored tensor without reading its values."""
        tensor = self._initializers.get(name)
        return None if tensor is None else tuple(tensor.dims)

    def dtype(self, name: str) -> str | None:
        """Return the element type of a stored tensor."""
        tensor = self._initializers.get(name)
        return None if tensor is None else _element_type(tensor.data_type)

    def is_varying(self, tensor: str) -> bool:
        """Return whether the values of `tensor` depend on the pixels."""
        return tensor in self._varying

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor, where it is known in full (see `edge.model.editor.resolve`)."""
        stored = self.initializer_shape(tensor)
        return self._shapes.get(tensor) if stored is None else stored

    def constant(self, tensor: str) -> Array | None:
        """Return the value of a tensor that does not depend on pixels, computed where that needs no unknown shape."""
        if tensor not in self._folded:
            self._folded[tensor] = self._fold(tensor)
        return self._folded[tensor]

    def _fold(self, tensor: str) -> Array | None:
        node = self.producer(tensor)
        if tensor in self._initializers:
            return self.initializer(tensor)
        if node is None or self.is_varying(tensor):
            return None
        if node.op_type == "Shape":
            shape = self.shape(node.inputs[0])
            window = slice(node.attributes.get("start", 0), node.attributes.get("end"))
            return None if shape is None else np.array(shape[window], np.int64)
        operands = {name: self.constant(name) for name in node.inputs if name}
        if any(value is None or value.size > _FOLDED_LIMIT for value in operands.values()):
            return None
        return None if self._folded_size(tensor, operands) > _RESULT_LIMIT else self.evaluate(tensor, operands)

    def _folded_size(self, tensor: str, operands: Mapping[str, Array | None]) -> int:
        """Return how many elements a node gives for these operands, by its shapes alone; 0 where they do not tell."""
        onnx, model = onnx_module(), self._single(self._positions[tensor])
        del model.graph.input[:]
        for name, value in operands.items():
            array = np.asarray(value)
            if array.size <= _SHAPE_LIMIT:  # sizes, repeats, limits: what a shape may follow from
                model.graph.initializer.append(tensor_proto(name, array))
            else:
                kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        return math.prod(infer_shapes(model).shape(tensor) or (0,))

    def evaluate(self, tensor: str, operands: Mapping[str, Array | None]) -> Array | None:
        """Return what the node that makes `tensor` gives for `operands`; None where that is not known to us."""
        try:
            evaluator = reference_evaluator(self._single(self._positions[tensor]))
            values: list[Array] = list(evaluator.run([tensor], dict(operands)))
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
            return None  # an operator that the reference implementation does not run in this opset
        return np.asarray(values[0])

    def _single(self, position: int) -> ModelProto:
        """Return a model of one node, so that it is evaluated in this file's opset."""
        onnx = onnx_module()
        proto = self.proto.graph.node[position]
        inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(proto.input) if name]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = onnx.helper.make_graph([proto], "one", inputs, outputs)
        model: ModelProto = onnx.helper.make_model(graph, opset_imports=list(self.proto.opset_import))
        return model


def load_graph(path: Path) -> Graph:
    """Return the checked model at `path`, with its external data. Raises `ModelError` if the file cannot be read, is
    empty, cut short, or not a valid ONNX model; MissingDependencyError if onnx is not installed.
    """
    return graph_from_bytes(read_model_bytes(path), str(path), folder=path.parent)


def graph_from_bytes(data: bytes, where: str, *, folder: Path | None = None) -> Graph:
    """Return the checked model in `data`; `where` names it in errors, `folder` holds its external data.
    Raises `ModelError` as `load_graph`.
    """
    return graph_of_proto(parsed(data, where), where, folder=folder)


def graph_of_proto(proto: ModelProto, where: str, *, folder: Path | None = None) -> Graph:
    """Return the checked graph of a model that was `parsed`, which is completed by its external data.
    Raises `ModelError` as `load_graph`.
    """
    onnx = onnx_module()
    load_external(proto, where, folder, onnx)
    sort_nodes(proto)
    try:
        if proto.ByteSize() < _LARGEST_MESSAGE_BYTES:
            onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{where}: not a valid ONNX model: {reason}", hint="export it again") from error
    graph = Graph(proto)
    _require_sizes(graph, where)
    return graph


def _require_sizes(graph: Graph, where: str) -> None:
    for info in graph.inputs:
        if any(isinstance(dim, int) and dim < 1 for dim in info.shape):
            raise ModelError(
                f'{where}: input "{info.name}" is declared as {info.shape}, expected sizes of at least 1',
                hint="export it again, a size that may vary under a name",
            )


def parsed(data: bytes, where: str) -> ModelProto:
    """Return what `data` holds, as it is; `where` names it in errors.
    Raises `ModelError` if it is empty, cut short, or no ONNX model.
    """
    if not data:
        raise ModelError(
            f"{where}: expected an ONNX model, the file is empty (0 bytes)", hint="copy or export it again"
        )
    if (found := mistaken(data)) is not None and not found.is_model:
        raise ModelError(f"{where}: expected an ONNX model, these {len(data)} bytes are {found.what}", hint=found.todo)
    try:
        proto: ModelProto = onnx_module().load_model_from_string(data)
    except decode_error() as error:
        size = f"{len(data)} bytes"
        if is_text(data):
            raise ModelError(
                f"{where}: expected an ONNX model, these {size} are text, such as a pipeline file or a table",
                hint="name the .onnx file; have two files changed places?",
            ) from error
        raise ModelError(
            f"{where}: expected an ONNX model, these {size} cannot be parsed: cut short, or of another format",
            hint="compare the size with the original and copy or export it again",
        ) from error
    if not proto.graph.node:
        raise ModelError(
            f"{where}: expected an ONNX model, these {len(data)} bytes hold no node", hint="export it again"
        )
    return proto


def read_model_bytes(path: Path, most_bytes: int = _LARGEST_MESSAGE_BYTES) -> bytes:
    """Raise `ModelError` if it cannot be read, or is longer than `most_bytes`."""
    try:
        return read_file(path, most_bytes=most_bytes, follows_links=True)
    except OSError as error:
        raise ModelError(f"{path}: expected a readable ONNX file: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model file that was read."""

    path: Path
    sha256: str  # of the file, and of the files that it keeps its weights in, if any
    content: bytes  # the model in one piece; the bytes of the file, unless it keeps weights in others
    graph: Graph  # what is inside, checked

    def __reduce__(self) -> tuple[Callable[..., ModelFile], tuple[Path, str, bytes]]:
        """Travel as bytes, which are parsed again where they arrive."""
        return _arrived, (self.path, self.sha256, self.content)


def _arrived(path: Path, sha256: str, content: bytes) -> ModelFile:
    return ModelFile(path=path, sha256=sha256, content=content, graph=graph_from_bytes(content, str(path)))


def read_model_file(path: Path) -> ModelFile:
    """Return the model at `path`, with its external data. Raises `ModelError` if the file cannot be read, is empty, cut
    short, or not a valid ONNX model; MissingDependencyError if onnx is not installed.
    """
    content = read_model_bytes(path)
    proto = parsed(content, str(path))
    digest, others = hashlib.sha256(content), external_locations(proto)
    graph = graph_of_proto(proto, str(path), folder=path.parent)
    for location in others:
        digest.update(read_model_bytes(path.parent / location, MOST_EXTERNAL_BYTES))
    if others:
        content = graph.proto.SerializeToString()
    return ModelFile(path=path, sha256=digest.hexdigest(), content=content, graph=graph)


def _array(tensor: TensorProto) -> Array:
    array: Array = onnx_module().numpy_helper.to_array(tensor)
    return array


def _node(proto: NodeProto) -> Node:
    return Node(
        op_type=proto.op_type,
        name=proto.name,
        domain=proto.domain,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={attribute.name: _attribute(attribute) for attribute in proto.attribute},
    )


def _attribute(proto: AttributeProto) -> Any:
    value = onnx_module().helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx_module().TensorProto):
        return _array(value)
    return value if isinstance(value, int | float) else tuple(value) if hasattr(value, "__iter__") else value


def _tensor_info(proto: ValueInfoProto) -> TensorInfo:
    tensor = proto.type.tensor_type
    dims = (dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim)
    return TensorInfo(name=proto.name, dtype=_element_type(tensor.elem_type), shape=tuple(dims))


def _element_type(number: int) -> str:
    element: str = onnx_module().TensorProto.DataType.Name(number).lower()
    return _DTYPES.get(element, element)


_DTYPES: Mapping[str, str] = {"float": "float32", "double": "float64"}
_ELEMENT_NUMBERS = {"float32": "FLOAT", "float16": "FLOAT16"}


def infer_shapes(proto: ModelProto) -> Graph:
    """Return a graph of `proto` that knows the shapes which can be inferred in full."""
    onnx = onnx_module()
    try:
        known = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        known = proto  # larger than one message, or contradictory: what is declared has to do
    infos = [_tensor_info(value) for value in (*known.graph.value_info, *known.graph.output, *known.graph.input)]
    return Graph(proto, {info.name: shape for info in infos if (shape := _numbers(info)) is not None})


def tensor_proto(name: str, value: Array) -> TensorProto:
    tensor: TensorProto = onnx_module().numpy_helper.from_array(value, name)
    return tensor


def node_proto(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], *, name: str, **attributes: Any
) -> NodeProto:
    """Return a node of the standard operators that can be put into a model; a type is given as `to="float16"`."""
    if isinstance(attributes.get("to"), str):
        attributes["to"] = getattr(onnx_module().TensorProto, _ELEMENT_NUMBERS[attributes["to"]])
    node: NodeProto = onnx_module().helper.make_node(op_type, inputs, outputs, name=name, **attributes)
    return node


def _numbers(info: TensorInfo) -> tuple[int, ...] | None:
    numbers = tuple(dim for dim in info.shape if isinstance(dim, int))
    return numbers if len(numbers) == len(info.shape) else None
