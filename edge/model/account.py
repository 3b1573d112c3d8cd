"""Operations and bytes of each layer, from the shapes of its tensors.

Who makes and who reads a tensor, looking through what moves no bytes in an engine, and in which type it is stored.

Q/DQ pairs fold into the layers around them. Reshapes, and Split, Slice and Concat, are ways of looking at memory: who
makes a part of a Concat writes it to its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from edge.errors import ModelError
from edge.model.cost import macs_of, parameters_of
from edge.model.editor import resolve
from edge.model.graph import Graph, Node
from edge.model.layer_account import BIAS_BYTES_INT8, ELEMENT_BYTES, ConvShape, LayerAccount, ModelAccount
from edge.model.node import POINTWISE, QDQ_OPERATORS
from edge.model.qdq.placement import WEIGHTED, called
from edge.model.qdq.read import is_computed_in_int8, is_dequantized
from edge.types import ModelSpec, Precision

__all__ = ["Flow", "account_of_model"]

_SAME = frozenset((*QDQ_OPERATORS, "Cast", "CastLike", "Dropout", "Identity"))
_VIEWS = frozenset(("Concat", "Flatten", "Reshape", "Split", "Squeeze", "Unsqueeze"))
_MOVING = frozenset(
    ("DepthToSpace", "Expand", "Gather", "MaxPool", "Pad", "Slice", "SpaceToDepth", "Tile", "Transpose")
)


class Flow:
    """The tensors of a graph whose shapes are known, as engines move them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs = {info.name for info in graph.inputs}
        self._outputs = {info.name for info in graph.outputs}
        self._wanted: dict[str, frozenset[bool]] = {}

    def carried(self, name: str) -> str:
        """Return the tensor whose values `name` has, whatever type they are stored in."""
        node = self.graph.producer(name)
        while node is not None and node.op_type in _SAME and self.graph.is_varying(name):
            name = node.inputs[0]
            node = self.graph.producer(name)
        return name

    def is_folded(self, node: Node) -> bool:
        """Return whether `node` is no layer: it depends on no pixel, or moves no byte."""
        if not any(self.graph.is_varying(name) for name in node.outputs):
            return True
        return node.op_type in _SAME or self._is_view(node) or self._is_padding(node)

    def is_read_whole_by(self, tensor: str) -> Iterator[Node]:
        """Yield the nodes that read `tensor` as it is, through Q/DQ pairs."""
        for node in self.graph.consumers(tensor):
            if node.op_type in _SAME:
                yield from self.is_read_whole_by(node.outputs[0])
            elif any(self.graph.is_varying(name) for name in node.outputs):
                yield node

    def is_output(self, tensor: str) -> bool:
        """Return whether the model gives back `tensor`, or what has its values."""
        return any(self.carried(name) == tensor for name in self._outputs)

    def leaves(self, tensor: str) -> Iterator[tuple[Node | None, bool]]:
        """Yield the layers that read `tensor` or parts of it, and whether in INT8; None where it is an output."""
        if tensor in self._outputs:
            yield None, False
        for node in self.graph.consumers(tensor):
            if not self.is_folded(node):
                yield node, self.reads_int8(node, tensor)
            elif any(map(self.graph.is_varying, node.outputs)):
                for out in node.outputs:
                    yield from self.leaves(out)

    def reads_int8(self, node: Node, tensor: str) -> bool:
        """Return whether the layer of `node` reads `tensor` in INT8: dequantized, or moved to where it is quantized."""
        if is_dequantized(self.graph, tensor):
            return True
        return is_moving_layer(node) and self.wanted(node.outputs[0]) == {True}

    def wanted(self, tensor: str) -> frozenset[bool]:
        """Return in which types `tensor` is read: INT8 (True), float (False), both, or not at all."""
        if tensor not in self._wanted:
            self._wanted[tensor] = frozenset(is_int8 for _, is_int8 in self.leaves(tensor))
        return self._wanted[tensor]

    def root(self, tensor: str) -> str:
        """Return the tensor whose memory `tensor` lies in: one that a layer or a Concat makes, or an input."""
        node = self.graph.producer(tensor)
        if node is None or node.op_type == "Concat" or not self.is_folded(node):
            return tensor
        return self.root(node.inputs[0])

    def is_of_input(self, tensor: str) -> bool:
        """Return whether `tensor` is the picture itself, or a part of it."""
        return self.root(tensor) in self._inputs

    def _is_view(self, node: Node) -> bool:
        return node.op_type in _VIEWS or (node.op_type == "Slice" and self._steps(node) == {1})

    def _steps(self, node: Node) -> set[int]:
        steps = self.graph.constant(node.input(4)) if node.input(4) else None
        return {1} if steps is None else {int(step) for step in steps.reshape(-1)}

    def _is_padding(self, node: Node) -> bool:
        """Return whether `node` pads what only convolutions read: they pad themselves."""
        return node.op_type == "Pad" and all(one.op_type == "Conv" for one in self.is_read_whole_by(node.outputs[0]))


def is_moving_layer(node: Node) -> bool:
    """Return whether every value that `node` makes is one of those that it reads, but bytes are moved for it."""
    if node.op_type in ("Resize", "Upsample"):
        return bool(node.attributes.get("mode", "nearest") == "nearest")
    return node.op_type in _MOVING


# Which operators run as one layer: what engines fuse.
#
# A weighted operator takes the pointwise ones behind it (bias, normalization, activation, residual Add) as long as
# nothing else reads what is in between; pointwise operators in a row are one layer, too. All others are layers of their
# own.

_MOST_BETWEEN = 3  # operators of an activation between its input and where it meets it again: Mish has two


Layer = list[Node]  # operators that run as one; the first gives it its name and its work


def is_pointwise(node: Node) -> bool:
    """Return whether `node` works out each value from the values at its place, and stored ones."""
    return node.op_type in POINTWISE or node.op_type == "BatchNormalization"


class Fuser:
    """Gathers `layers` in the order of their first operators."""

    def __init__(self, flow: Flow) -> None:
        self.layers: list[Layer] = []
        self._flow = flow
        self._positions = {id(node): position for position, node in enumerate(flow.graph.nodes)}
        self._layer_of: dict[int, Layer] = {}
        for node in flow.graph.nodes:
            if not flow.is_folded(node):
                self._add(node)

    def _add(self, node: Node) -> None:
        host = self._host(node) if is_pointwise(node) else None
        if host is None:
            host = []
            self.layers.append(host)
        host.append(node)
        self._layer_of[id(node)] = host

    def _host(self, node: Node) -> Layer | None:
        """Return the layer that `node` is fused into: of those that may take it the one that is ready last."""
        tensors = [self._flow.carried(name) for name in node.inputs]
        makers = [self._flow.graph.producer(name) for name in tensors if self._may_end_in(node, name)]
        known = [maker for maker in makers if maker is not None and id(maker) in self._layer_of]
        open_ = [maker for maker in known if _takes_pointwise(self._layer_of[id(maker)][0])]
        last = max(open_, key=lambda maker: self._positions[id(maker)], default=None)
        return None if last is None else self._layer_of[id(last)]

    def _may_end_in(self, node: Node, tensor: str) -> bool:
        """Return whether `tensor`, of the same shape as what `node` makes, need not be stored for anybody else."""
        graph = self._flow.graph
        if self._flow.is_output(tensor) or graph.shape(tensor) != graph.shape(node.outputs[0]):
            return False
        readers = list(self._flow.is_read_whole_by(tensor))
        return all(reader is node or self._waits_for(reader, [node], _MOST_BETWEEN) for reader in readers)

    def _waits_for(self, reader: Node, nodes: Sequence[Node], most: int) -> bool:
        """Return whether `reader` needs what one of `nodes` makes, with at most `most` pointwise ones between."""
        if most == 0 or not is_pointwise(reader):
            return False
        makers = [self._flow.graph.producer(self._flow.carried(name)) for name in reader.inputs]
        known = [maker for maker in makers if maker is not None]
        return any(maker in nodes or self._waits_for(maker, nodes, most - 1) for maker in known)


def _takes_pointwise(first: Node) -> bool:
    return first.op_type in WEIGHTED or is_pointwise(first) or first.op_type == "Transpose"


_NORMALIZING = frozenset(("InstanceNormalization", "LayerNormalization"))
_POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))
_TAPS = 4  # of a bilinear Resize: each takes a product and a sum
_SOFTMAX_STEPS = 3  # exponential, sum, quotient
_BIAS = 2
_PLANE = 4


def account_of_model(graph: Graph, spec: ModelSpec, *, batch: int, float_type: Precision) -> ModelAccount:
    """Return the account of a model, float or with Q/DQ pairs.

    `graph`: its inside; what it computes with dequantized operands counts as INT8. `batch`: frames at once.
    `float_type`: in what it computes all else. Raises `ModelError` if the model cannot take that batch.
    """
    _require_batch(spec, batch)
    size = spec.preprocess.size
    counter = _Counter(Flow(resolve(graph, (batch, 3, size.height, size.width))), float_type)
    layers = tuple(counter.layers())
    return ModelAccount(
        batch=batch,
        precision=Precision.INT8 if any(layer.precision is Precision.INT8 for layer in layers) else float_type,
        layers=layers,
        uncounted=tuple(counter.uncounted),
    )


def _require_batch(spec: ModelSpec, batch: int) -> None:
    if batch < 1:
        raise ModelError(f"{spec.path}: expected a batch of at least 1 frame, got {batch}")
    if spec.batch is not None and spec.batch != batch:
        raise ModelError(
            f"{spec.path}: its batch is fixed to {spec.batch}, got a batch of {batch}",
            hint=f"ask for a batch of {spec.batch}, or export the model with a dynamic batch",
        )


_Counted = tuple[Node, Callable[[], LayerAccount]]


class _UnknownSizeError(Exception):
    """The size of a tensor cannot be told from the graph."""


class _Counter:
    def __init__(self, flow: Flow, float_type: Precision) -> None:
        self._flow = flow
        self._graph = flow.graph
        self._float_type = float_type
        self.uncounted: list[str] = []

    def layers(self) -> Iterator[LayerAccount]:
        """Yield the layers in the order of their first operators; note those that cannot be counted."""
        order = {id(node): position for position, node in enumerate(self._graph.nodes)}
        for node, count in sorted((*self._computing(), *self._joining()), key=lambda one: order[id(one[0])]):
            try:
                layer = count()
            except _UnknownSizeError:
                self.uncounted.append(called(node))
            else:
                yield layer

    def _computing(self) -> Iterator[_Counted]:
        for layer in Fuser(self._flow).layers:
            yield layer[0], partial(self._layer, layer)

    def _joining(self) -> Iterator[_Counted]:
        """Yield each Concat that has to copy something, because it cannot be written to its place at once."""
        placed: dict[str, Node] = {}
        for node in self._graph.nodes:
            if node.op_type == "Concat" and self._graph.is_varying(node.outputs[0]):
                copied = list(self._copied(node, placed))
                if copied:
                    yield node, partial(self._join, node, copied)

    def _layer(self, layer: Layer) -> LayerAccount:
        first = layer[0]
        is_int8 = self._is_int8(first)
        return LayerAccount(
            name=called(first),
            op_type=first.op_type,
            fused=tuple(node.op_type for node in layer),
            precision=Precision.INT8 if is_int8 else self._float_type,
            operations=self._operations(layer),
            parameters=sum(parameters_of(node, self._graph) for node in layer),
            weight_bytes=sum(self._stored_bytes(node) for node in layer),
            read_bytes=self._read_bytes(layer),
            written_bytes=sum(self._written_bytes(layer, name) for node in layer for name in node.outputs if name),
            shape=_conv_shape(first, self._graph),
        )

    def _is_int8(self, node: Node) -> bool:
        is_moved = is_moving_layer(node) and self._flow.reads_int8(node, node.inputs[0])
        return is_moved or is_computed_in_int8(self._graph, node)

    def _operations(self, layer: Layer) -> int:
        if layer[0].op_type in WEIGHTED:
            return 2 * macs_of(layer[0], self._graph)
        return sum(self._worked_out(node) for node in layer)

    def _worked_out(self, node: Node) -> int:
        """Return the steps of an operator that multiplies no weights."""
        made = self._elements(node.outputs[0])
        if node.op_type in _POOLS:
            kernel: tuple[int, ...] = node.attributes.get("kernel_shape", (1,))
            return made * math.prod(kernel)
        if is_moving_layer(node):
            return 0
        if node.op_type in ("Resize", "Upsample"):
            return made * 2 * _TAPS
        if node.op_type in ("Softmax", "LogSoftmax"):
            return made * _SOFTMAX_STEPS
        return made if is_pointwise(node) else max(made, self._elements(node.inputs[0]))

    def _stored_bytes(self, node: Node) -> int:
        if not (node.op_type in WEIGHTED or node.op_type in _NORMALIZING or is_pointwise(node)):
            return 0
        return sum(
            self._elements(name) * self._stored_element_bytes(node, index)
            for index, name in enumerate(node.inputs)
            if name and not self._graph.is_varying(name)
        )

    def _stored_element_bytes(self, node: Node, index: int) -> int:
        if node.op_type in WEIGHTED and is_dequantized(self._graph, node.inputs[1]):
            return BIAS_BYTES_INT8 if index == _BIAS else ELEMENT_BYTES[Precision.INT8]
        return ELEMENT_BYTES[self._float_type]

    def _read_bytes(self, layer: Layer) -> int:
        """Return what comes from outside of the layer, each tensor once."""
        seen: dict[str, int] = {}
        for node in layer:
            for name in node.inputs:
                tensor = self._flow.carried(name)
                is_inside = _has(layer, self._graph.producer(tensor))
                if name and self._graph.is_varying(name) and not is_inside:
                    seen[tensor] = self._elements_read(node, tensor) * self._element_bytes(node, name, tensor)
        return sum(seen.values())

    def _elements_read(self, node: Node, tensor: str) -> int:
        elements = self._elements(tensor)
        return min(elements, self._elements(node.outputs[0])) if node.op_type in ("Gather", "Slice") else elements

    def _element_bytes(self, node: Node, name: str, tensor: str) -> int:
        """Return what one value takes where `node` reads it; frames come as uint8."""
        is_small = self._flow.is_of_input(tensor) or self._flow.reads_int8(node, name)
        return ELEMENT_BYTES[Precision.INT8 if is_small else self._float_type]

    def _written_bytes(self, layer: Layer, tensor: str) -> int:
        kinds = {is_int8 for reader, is_int8 in self._flow.leaves(tensor) if not _has(layer, reader)}
        each = sum(ELEMENT_BYTES[Precision.INT8 if is_int8 else self._float_type] for is_int8 in kinds)
        return self._elements(tensor) * each if each else 0

    def _copied(self, node: Node, placed: dict[str, Node]) -> Iterator[str]:
        """Yield the inputs of a Concat that lie elsewhere already: of the model, joined before, or here twice."""
        names = [self._flow.carried(name) for name in node.inputs]
        for index, name in enumerate(names):
            is_elsewhere = placed.setdefault(self._flow.root(name), node) is not node
            if self._graph.is_varying(name) and (is_elsewhere or self._flow.is_of_input(name) or name in names[:index]):
                yield name

    def _join(self, node: Node, copied: list[str]) -> LayerAccount:
        is_int8 = self._flow.wanted(node.outputs[0]) == {True}
        kind = Precision.INT8 if is_int8 else self._float_type
        moved = sum(self._elements(name) for name in copied) * ELEMENT_BYTES[kind]
        return LayerAccount(
            name=called(node),
            op_type=node.op_type,
            fused=(node.op_type,),
            precision=kind,
            operations=0,
            parameters=0,
            weight_bytes=0,
            read_bytes=moved,
            written_bytes=moved,
        )

    def _elements(self, name: str) -> int:
        shape = self._graph.shape(name)
        if shape is None:
            value = None if self._graph.is_varying(name) else self._graph.constant(name)
            if value is None:
                raise _UnknownSizeError
            shape = value.shape
        return math.prod(shape)


def _has(layer: Layer, node: Node | None) -> bool:
    return any(one is node for one in layer)


def _conv_shape(node: Node, graph: Graph) -> ConvShape | None:
    """Return the shape of a convolution in two dimensions, or of a Gemm with stored weights."""
    read, made = graph.shape(node.inputs[0]) or (), graph.shape(node.outputs[0]) or ()
    if node.op_type == "Conv" and len(read) == len(made) == _PLANE:
        kernel, groups = graph.shape(node.inputs[1]) or (), node.attributes.get("group", 1)
        if len(kernel) != _PLANE or groups < 1:
            return None
        return ConvShape(
            kernel=(kernel[2], kernel[3]),
            channels_in=read[1],
            channels_out=made[1],
            groups=groups,
            size_in=(read[2], read[3]),
            size_out=(made[2], made[3]),
        )
    if node.op_type == "Gemm" and not graph.is_varying(node.inputs[1]):
        point = (1, 1)
        return ConvShape(
            kernel=point, channels_in=read[-1], channels_out=made[-1], groups=1, size_in=point, size_out=point
        )
    return None
