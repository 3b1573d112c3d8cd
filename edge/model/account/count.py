"""Operations and bytes of each layer, from the shapes of its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from edge.errors import ModelError
from edge.model.account.flow import Flow, is_moving_layer
from edge.model.account.fusion import Fused, fused_layers, is_pointwise
from edge.model.account.layer import BIAS_BYTES_INT8, ELEMENT_BYTES, ConvShape, LayerAccount, ModelAccount
from edge.model.cost import macs_of, parameters_of
from edge.model.editor import resolve
from edge.model.graph import Graph, Node
from edge.model.qdq.placement import WEIGHTED, called
from edge.model.qdq.share import is_dequantized
from edge.types import ModelSpec, Precision

__all__ = ["account_of_model"]

_NORMALIZING = frozenset(("InstanceNormalization", "LayerNormalization"))
_POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))
_TAPS = 4  # of a bilinear Resize: each takes a product and a sum
_SOFTMAX_STEPS = 3  # exponential, sum, quotient
_BIAS = 2
_PLANE = 4


def account_of_model(graph: Graph, spec: ModelSpec, *, batch: int, float_type: Precision) -> ModelAccount:
    """Return the account of a model, float or with Q/DQ pairs.

    Args:
        graph: its inside; what it computes with dequantized operands counts as INT8.
        spec: what it is, or the model that it was made of.
        batch: frames at once.
        float_type: in what it computes all else.

    Raises:
        ModelError: if the model cannot take that batch.
    """
    _require_batch(spec, batch)
    size = spec.preprocess.size
    counter = _Counter(Flow(resolve(graph, (batch, 3, size.height, size.width))), batch, float_type)
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
    """Counts the layers of one graph."""

    def __init__(self, flow: Flow, batch: int, float_type: Precision) -> None:
        self._flow = flow
        self._graph = flow.graph
        self._batch = batch
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
        for layer in fused_layers(self._flow):
            yield layer.first, partial(self._layer, layer)

    def _joining(self) -> Iterator[_Counted]:
        """Yield each Concat that has to copy something, because it cannot be written to its place at once."""
        placed: dict[str, Node] = {}
        for node in self._graph.nodes:
            if node.op_type == "Concat" and self._graph.is_varying(node.outputs[0]):
                copied = list(self._copied(node, placed))
                if copied:
                    yield node, partial(self._join, node, copied)

    def _layer(self, layer: Fused) -> LayerAccount:
        first = layer.first
        is_int8 = self._is_int8(first)
        return LayerAccount(
            name=called(first),
            op_type=first.op_type,
            fused=tuple(node.op_type for node in layer.nodes),
            precision=Precision.INT8 if is_int8 else self._float_type,
            operations=self._operations(layer),
            parameters=sum(parameters_of(node, self._graph) for node in layer.nodes),
            weight_bytes=sum(self._stored_bytes(node) for node in layer.nodes),
            read_bytes=self._read_bytes(layer),
            written_bytes=sum(
                self._written_bytes(layer, name) for node in layer.nodes for name in node.outputs if name
            ),
            shape=_conv_shape(first, self._graph),
            nodes=tuple(map(called, layer.nodes)),
        )

    def _is_int8(self, node: Node) -> bool:
        if node.op_type in WEIGHTED:
            return all(is_dequantized(self._graph, name) for name in node.inputs[:2])
        return is_moving_layer(node) and self._flow.reads_int8(node, node.inputs[0])

    def _operations(self, layer: Fused) -> int:
        if layer.first.op_type in WEIGHTED:
            return 2 * macs_of(layer.first, self._graph)
        return sum(self._worked_out(node) for node in layer.nodes)

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

    def _read_bytes(self, layer: Fused) -> int:
        """Return what comes from outside of the layer, each tensor once."""
        seen: dict[str, int] = {}
        for node in layer.nodes:
            for name in node.inputs:
                tensor = self._flow.carried(name)
                is_inside = layer.has(self._graph.producer(tensor))
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

    def _written_bytes(self, layer: Fused, tensor: str) -> int:
        kinds = {is_int8 for reader, is_int8 in self._flow.leaves(tensor) if reader is None or not layer.has(reader)}
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
            nodes=(called(node),),
        )

    def _elements(self, name: str) -> int:
        shape = self._graph.shape(name)
        if shape is None:
            value = None if self._graph.is_varying(name) else self._graph.constant(name)
            if value is None:
                raise _UnknownSizeError
            shape = value.shape
        return math.prod(shape)


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
