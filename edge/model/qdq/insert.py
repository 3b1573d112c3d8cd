"""From a float model and ranges to an explicit Q/DQ model.

Weights are stored as int8 in front of a DequantizeLinear: a quarter of the bytes, which TensorRT 10, OpenVINO and ONNX
Runtime take; or in float in front of a pair, which TensorRT 8 takes too and which computes the same to the bit. Biases
stay in float; where the means of what a convolution reads are known, what the rounding of its weights adds on average
is taken off (`edge.model.qdq.bias`). Names follow from the tensor (`x/scale`, `x/dequantized`), all others are
untouched.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.cost import cost_for_one
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, load_graph
from edge.model.obstacles import INTEGER_OPERATORS, QDQ_OPERATORS
from edge.model.opset import with_opset
from edge.model.qdq.bias import mean_shift
from edge.model.qdq.centre import Centre, centres
from edge.model.qdq.half import halve
from edge.model.qdq.pairs import Pairs, moved_tensors
from edge.model.qdq.placement import Placement, called, place
from edge.model.qdq.scales import (
    channel_axis,
    dequantize_weight,
    group_ranges,
    quantize_weight,
)
from edge.types import ModelSpec

__all__ = ["QdqModel", "insert_qdq"]

_OPSET = 13  # the first with a scale for each channel


@dataclass(frozen=True, slots=True, kw_only=True)
class QdqModel:
    """An explicit Q/DQ model.

    Attributes:
        model: the file.
        quantized_nodes: Conv, ConvTranspose, Gemm and MatMul in INT8, by name, else by their first output.
        float_nodes: those that are not.
        mac_share_int8: multiply-accumulates of the former, of all.
        ranges: of each tensor that is read in INT8, the one that its scale is made of: the largest of its group.
        centres: of those of them that are quantized around one, from which their scales are made then.
        lowered: those of these that the file holds less their centre under the name that they have in the float model.
    """

    model: bytes
    quantized_nodes: tuple[str, ...]
    float_nodes: tuple[str, ...]
    mac_share_int8: float
    ranges: Mapping[str, float]
    centres: Mapping[str, Centre] = field(default_factory=dict)
    lowered: tuple[str, ...] = ()


def insert_qdq(
    model: Path | Graph,
    spec: ModelSpec,
    *,
    ranges: Mapping[str, float],
    keep_float: Collection[str],
    means: Mapping[str, Sequence[float]] | None = None,
    is_centred: bool = False,
    is_padded: bool = False,
    has_zero_points: bool = False,
    is_float16: bool = False,
    has_float_weights: bool = False,
) -> QdqModel:
    """Return `model` with Q/DQ pairs where `edge.model.qdq.placement` puts them.

    Args:
        model: a float32 model, whose own opset is kept when it is 13 or newer.
        spec: what it is.
        ranges: largest absolute activation of at least `quantizable_tensors`; others are left unused.
        keep_float: names of nodes that stay in float, and of tensors that are not quantized, nor what reads them.
        means: of each channel of some tensors; biases are corrected behind those.
        is_centred: quantize tensors around their centres where that makes their steps finer (`edge.model.qdq.centre`).
        is_padded: also those that padded convolutions read.
        has_zero_points: write activations in uint8, with centres as zero points, as OpenVINO takes them.
        is_float16: compute the rest in float16, for strongly typed TensorRT; decoding and scales stay in float32.
        has_float_weights: store weights in float, with a Q/DQ pair behind each.

    Raises:
        ModelError: if the model is quantized or half precision already, cannot be converted, or does not fit the names.
    """
    graph = load_graph(model) if isinstance(model, Path) else model
    _require_float(graph, spec.name)
    _require_known(graph, keep_float, spec.name)
    graph = with_opset(graph, _OPSET, spec.name)
    placement = place(graph, keep_float)
    amax = group_ranges(graph, placement, ranges)
    _require_finite_in(np.finfo(np.float16 if is_float16 else np.float32), amax, spec.name)
    around = centres(graph, placement, amax, is_padded=is_padded) if is_centred else {}
    writer = _Writer(
        graph, means or {}, amax, around, has_zero_points=has_zero_points, has_float_weights=has_float_weights
    )
    editor = writer.written(placement)
    if is_float16:
        halve(editor, spec.name, exact=writer.exact)
    editor.sweep()
    editor.graph()
    return QdqModel(
        model=editor.to_bytes(),
        quantized_nodes=tuple(called(node) for node in placement.quantized),
        float_nodes=tuple(called(node) for node in placement.floats),
        mac_share_int8=_mac_share(graph, spec, placement),
        ranges=amax,
        centres=around,
        lowered=() if has_zero_points else tuple(sorted(moved_tensors(graph, placement).intersection(around))),
    )


class _Writer:
    """Puts pairs into a copy of a graph; `exact` are tensors that float16 must not round (`edge.model.qdq.pairs`)."""

    def __init__(
        self,
        graph: Graph,
        means: Mapping[str, Sequence[float]],
        amax: Mapping[str, float],
        around: Mapping[str, Centre],
        *,
        has_zero_points: bool,
        has_float_weights: bool,
    ) -> None:
        self._graph = graph
        self._means = means
        self._around = around
        self._has_float_weights = has_float_weights
        self._draft = ModelEditor(graph)
        self._pairs = Pairs(self._draft, graph, amax, around, has_zero_points=has_zero_points)
        self._weights: dict[tuple[str, int], tuple[str, NDArray[np.float32]]] = {}

    @property
    def exact(self) -> set[str]:
        return self._pairs.exact

    def written(self, placement: Placement) -> ModelEditor:
        self._draft.store_inputs_apart()
        self._pairs.write(placement)
        quantized = {id(node) for node in placement.quantized}
        for position, node in enumerate(self._graph.nodes):
            if id(node) in quantized and not self._graph.is_varying(node.inputs[1]):
                name, errors = self._weight(node, position)
                self._draft.set_input(position, 1, name)
                self._correct_bias(node, position, errors)
        self._draft.insert_nodes(self._pairs.before)
        return self._draft

    def _weight(self, node: Node, position: int) -> tuple[str, NDArray[np.float32]]:
        """Return the name of the weight in INT8, and what rounding has added to each of its values."""
        name = node.inputs[1]
        weight = _float_weight(self._graph, node)
        axis = channel_axis(node, weight.ndim)
        if (name, axis) not in self._weights:
            values, scales = quantize_weight(weight, axis)
            scale = self._draft.add_constant(f"{name}/scale", scales)
            zero = self._draft.add_constant(f"{name}/zero_point", np.zeros(scales.shape, np.int8))
            if self._has_float_weights:
                stored = self._pairs.insert(
                    "QuantizeLinear", (name, scale, zero), f"{name}/quantized", position, axis=axis
                )
            else:
                stored = self._draft.add_constant(f"{name}/quantized", values)
            made = self._pairs.insert(
                "DequantizeLinear", (stored, scale, zero), f"{name}/dequantized", position, axis=axis
            )
            self._weights[name, axis] = made, dequantize_weight(values, scales, axis) - weight
        return self._weights[name, axis]

    def _correct_bias(self, node: Node, position: int, errors: NDArray[np.float32]) -> None:
        name, read = node.input(2), node.inputs[0]
        bias = self._graph.constant(name) if name else np.zeros(len(errors), np.float32)
        if node.op_type != "Conv" or bias is None:
            return
        corrected = bias
        if read in self._means:
            corrected = corrected - mean_shift(node, errors, self._means[read])
        if self._pairs.is_lowered(read):
            weight = _float_weight(self._graph, node) + errors
            corrected = corrected + self._around[read].value * weight.reshape(len(weight), -1).sum(axis=1)
        if corrected is not bias:
            label = f"{name or called(node)}/corrected"
            self._draft.set_input(position, 2, self._draft.add_constant(label, corrected.astype(np.float32)))


def _float_weight(graph: Graph, node: Node) -> NDArray[np.float32]:
    weight = graph.constant(node.inputs[1])
    if weight is None or weight.dtype != np.float32:
        found = "none" if weight is None else weight.dtype
        raise ModelError(f"{called(node)}: expected a float32 weight, got {found}", hint="start from the float32 model")
    if not np.isfinite(weight).all():
        raise ModelError(f"{called(node)}: its weight holds values that are not finite", hint="export the model again")
    return weight


def _require_float(graph: Graph, where: str) -> None:
    kinds = {node.op_type for node in graph.nodes}
    if found := sorted(kinds.intersection((*QDQ_OPERATORS, *INTEGER_OPERATORS))):
        raise ModelError(
            f"{where}: expected a float model, it is quantized already ({', '.join(found)})",
            hint="start from the float model, or read it back from the Q/DQ model",
        )


def _require_finite_in(kind: np.finfo[Any], amax: Mapping[str, float], where: str) -> None:
    for name, largest in amax.items():
        if largest > float(kind.max):
            raise ModelError(f'{where}: "{name}" reaches {largest:g}, more than {kind.dtype} can hold')


def _require_known(graph: Graph, keep_float: Collection[str], where: str) -> None:
    """Refuse names that mean nothing here: a layer that was to stay in float would silently run in INT8."""
    known = {called(node) for node in graph.nodes} | {name for node in graph.nodes for name in node.inputs}
    known |= {name for node in graph.nodes for name in node.outputs}
    unknown = sorted(set(keep_float) - known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        guess = f' (nearest: "{near[0]}")' if near else ""
        raise ModelError(
            f'{where}: keep_float names "{unknown[0]}"{guess}, which is no node and no tensor of this model'
            + (f"; {len(unknown) - 1} more are unknown" if len(unknown) > 1 else ""),
            hint="the names belong to one ONNX file: calibrate this one",
        )


def _mac_share(graph: Graph, spec: ModelSpec, placement: Placement) -> float:
    cost = cost_for_one(graph, spec)
    outputs = {node.outputs[0] for node in placement.quantized}
    return sum(node.macs for node in cost.nodes if node.output in outputs) / max(1, cost.macs)
