"""From a float model and ranges to an explicit Q/DQ model.

Weights are stored as int8 in front of a DequantizeLinear: a quarter of the bytes, which TensorRT 10, OpenVINO and ONNX
Runtime take; or in float in front of a pair, which TensorRT 8 takes too and which computes the same to the bit. Biases
stay in float; where the means of what a convolution reads are known, what the rounding of its weights adds on average
is taken off (`mean_shift`). Names follow from the tensor (`x/scale`, `x/dequantized`), all others are
untouched.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.cost import mac_share
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, load_graph, node_proto
from edge.model.opset import require_float32, with_opset
from edge.model.qdq.half import halve
from edge.model.qdq.placement import Placement, called, moved_tensors, place
from edge.model.qdq.scales import (
    Centre,
    centres,
    channel_axis,
    dequantize_weight,
    group_ranges,
    padding_of,
    quantize_weight,
    scale_of,
)
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.model.binding import NodeProto

__all__ = ["QdqModel", "corrected_tensors", "insert_qdq", "mean_shift"]


def corrected_tensors(graph: Graph) -> tuple[str, ...]:
    """Return the tensors whose means say how to correct biases, in the order of the file, whatever stays in float."""
    return tuple(dict.fromkeys(node.inputs[0] for node in place(graph).quantized if node.op_type == "Conv"))


def mean_shift(node: Node, errors: NDArray[np.float32], means: Sequence[float]) -> NDArray[np.float32]:
    """Return what rounding adds to the mean of each output channel, float32 (channels,): to be taken off its bias.

    The mean of a channel that is computed with rounded weights W' is off by the sum of (W' - W) times the means of what
    the layer reads: as large as what rounding does to single values, but the same everywhere, so that it adds up from
    layer to layer. Padding is left out of account: at the border a little too much is taken off. Source: Nagel et al.,
    Data-Free Quantization through Weight Equalization and Bias Correction (2019), section 4.2.

    `node`: a Conv. `errors`: what rounding adds to its weight, float32 (out, in / group, ...). `means`: of the channels
    that `node` reads. Raises `ModelError` if `means` are of another number of channels.
    """
    groups = int(node.attributes.get("group", 1))
    out, each = errors.shape[:2]
    if len(means) != groups * each:
        raise ModelError(
            f'{called(node)} reads {groups * each} channels, "{node.inputs[0]}" has {len(means)} means',
            hint="calibrate again, or remove the means from the table",
        )
    added = errors.astype(np.float64).reshape(out, each, -1).sum(axis=2)
    read = np.asarray(means, np.float64).reshape(groups, each).repeat(out // groups, axis=0)
    return np.asarray((added * read).sum(axis=1), np.float32)


# Q/DQ pairs of activations, some of them around a centre (`edge.model.qdq.scales`), in one of two ways to write one.
#
# int8: `Sub` takes the centre off in front of Q, a residual Add gets it back, and what a padded convolution reads is
# padded by minus the centre in front of Q, where TensorRT makes it one kernel with the activation function.
# uint8: the centre is the zero point, and nothing else changes. Both hold the same levels.

_MIDDLE = 128  # of the levels of uint8


class _Writer:
    """Puts pairs and weights in INT8 into `draft`, a copy of a float model.

    `means`: of channels. `amax`: ranges of quantized tensors. `around`: centre of some of them. `has_zero_points`:
    write uint8, with centres as zero points. `exact`: tensors that float16 must not round: with a centre taken off or
    put back, and padded ones.
    """

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
        self.draft = ModelEditor(graph)
        self.exact: set[str] = set()
        self._graph = graph
        self._means = means
        self._amax = amax
        self._around = around
        self._has_zero_points = has_zero_points
        self._has_float_weights = has_float_weights
        self._before: dict[int, list[NodeProto]] = {}  # new nodes, by the position that they come in front of
        self._lowered: dict[str, str] = {}
        self._dequantized: dict[tuple[str, tuple[int, ...]], str] = {}
        self._weights: dict[tuple[str, int], tuple[str, NDArray[np.float32]]] = {}

    def write(self, placement: Placement) -> None:
        self.draft.store_inputs_apart()
        if not self._has_zero_points:
            self._lower(placement)
        for position, index in placement.pairs:
            name = self._graph.nodes[position].inputs[index]
            self.draft.set_input(position, index, self._read(name, position))
        quantized = {id(node) for node in placement.quantized}
        for position, node in enumerate(self._graph.nodes):
            if id(node) in quantized and not self._graph.is_varying(node.inputs[1]):
                name, errors = self._weight(node, position)
                self.draft.set_input(position, 1, name)
                self._correct_bias(node, position, errors)
        self.draft.insert_nodes(self._before)

    def _is_lowered(self, name: str) -> bool:
        """Return whether what reads `name` in INT8 gets it less its centre."""
        return name in self._around and not self._has_zero_points

    def _insert(self, op_type: str, inputs: tuple[str, ...], output: str, position: int, **attributes: int) -> str:
        """Put a new node in front of the one at `position`, and return what its output is called."""
        made = self.draft.unused_name(output)
        label = self.draft.unused_name(f"{inputs[0]}/{op_type}")
        self._before.setdefault(position, []).append(node_proto(op_type, inputs, [made], name=label, **attributes))
        return made

    def _lower(self, placement: Placement) -> None:
        """Take the centres off where their groups begin: what Concat and the like make of them is centred by that."""
        moved = moved_tensors(self._graph, placement)
        for position, index in placement.edges:
            name = self._graph.nodes[position].inputs[index]
            if name in self._around and name not in moved:
                if name not in self._lowered:
                    inputs = (name, self._constant(f"{name}/centre", self._around[name].value))
                    self._lowered[name] = self._exact("Sub", inputs, f"{name}/centred", position)
                self.draft.set_input(position, index, self._lowered[name])

    def _read(self, name: str, position: int) -> str:
        """Return what a node reads: a convolution has the centre in its bias, a residual Add gets it back."""
        node = self._graph.nodes[position]
        if not self._is_lowered(name):
            return self._pair(name, (), position)
        if node.op_type == "Add":
            inputs = (self._pair(name, (), position), self._constant(f"{name}/centre", self._around[name].value))
            return self._exact("Add", inputs, f"{name}/restored", position)
        pads = padding_of(node)
        if pads:
            self.draft.set_attributes(position, {**node.attributes, "pads": [0] * len(pads)})
        return self._pair(name, pads, position)

    def _pair(self, name: str, pads: tuple[int, ...], position: int) -> str:
        """Return what a pair makes of `name`, padded in front of it."""
        if (name, pads) not in self._dequantized:
            read = self._padded(name, pads, position) if pads else self._lowered.get(name, name)
            label = read if pads else name
            range_ = self._around[name].range_ if name in self._around else self._amax[name]
            scale = self.draft.add_constant(f"{label}/scale", scale_of(range_))
            zero = self.draft.add_constant(f"{label}/zero_point", self._zero(name))
            quantized = self._insert("QuantizeLinear", (read, scale, zero), f"{label}/quantized", position)
            made = self._insert("DequantizeLinear", (quantized, scale, zero), f"{label}/dequantized", position)
            self._dequantized[name, pads] = made
        return self._dequantized[name, pads]

    def _padded(self, name: str, pads: tuple[int, ...], position: int) -> str:
        """Return `name` less its centre, with zeros less the centre around it."""
        begin, end = pads[: len(pads) // 2], pads[len(pads) // 2 :]
        widths = self.draft.add_constant(f"{name}/pads", np.array((0, 0, *begin, 0, 0, *end), np.int64))
        inputs = (self._lowered.get(name, name), widths, self._constant(f"{name}/pad", -self._around[name].value))
        return self._exact("Pad", inputs, f"{name}/padded", position)

    def _zero(self, name: str) -> np.ndarray[tuple[()], np.dtype[np.int8 | np.uint8]]:
        if not self._has_zero_points:
            return np.array(0, np.int8)
        return np.array(_MIDDLE - (self._around[name].steps if name in self._around else 0), np.uint8)

    def _exact(self, op_type: str, inputs: tuple[str, ...], output: str, position: int) -> str:
        made = self._insert(op_type, inputs, output, position)
        self.exact.add(made)
        return made

    def _constant(self, name: str, value: float) -> str:
        return self.draft.add_constant(name, np.array(value, np.float32))

    def _weight(self, node: Node, position: int) -> tuple[str, NDArray[np.float32]]:
        """Return the name of the weight in INT8, and what rounding has added to each of its values."""
        name = node.inputs[1]
        weight = _float_weight(self._graph, node)
        axis = channel_axis(node, weight.ndim)
        if (name, axis) not in self._weights:
            values, scales = quantize_weight(weight, axis)
            scale = self.draft.add_constant(f"{name}/scale", scales)
            zero = self.draft.add_constant(f"{name}/zero_point", np.zeros(scales.shape, np.int8))
            if self._has_float_weights:
                stored = self._insert("QuantizeLinear", (name, scale, zero), f"{name}/quantized", position, axis=axis)
            else:
                stored = self.draft.add_constant(f"{name}/quantized", values)
            made = self._insert("DequantizeLinear", (stored, scale, zero), f"{name}/dequantized", position, axis=axis)
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
        if self._is_lowered(read):
            weight = _float_weight(self._graph, node) + errors
            corrected = corrected + self._around[read].value * weight.reshape(len(weight), -1).sum(axis=1)
        if corrected is not bias:
            label = f"{name or called(node)}/corrected"
            self.draft.set_input(position, 2, self.draft.add_constant(label, corrected.astype(np.float32)))


_OPSET = 13  # the first with a scale for each channel


@dataclass(frozen=True, slots=True, kw_only=True)
class QdqModel:
    """An explicit Q/DQ model."""

    model: bytes
    # Conv, ConvTranspose, Gemm and MatMul in INT8, by name, else by their first output
    quantized_nodes: tuple[str, ...]
    float_nodes: tuple[str, ...]  # those that are not
    mac_share_int8: float  # multiply-accumulates of the former, of all
    # of each tensor that is read in INT8, the one that its scale is made of: the largest of its group
    ranges: Mapping[str, float]
    # of those of them that are quantized around one, from which their scales are made then
    centres: Mapping[str, Centre] = field(default_factory=dict)
    # those of these that the file holds less their centre under the name that they have in the float model
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
    """Return `model` with Q/DQ pairs where `edge.model.qdq.placement` puts them. Raises `ModelError` if the model is
    quantized or half precision already, cannot be converted, or does not fit the names.

    Args:
        model: a float32 model, whose own opset is kept when it is 13 or newer.
        ranges: largest absolute activation of at least `quantizable_tensors`; others are left unused.
        keep_float: names of nodes that stay in float, and of tensors that are not quantized, nor what reads them.
        means: of each channel of some tensors; biases are corrected behind those.
        is_centred: quantize tensors around their centres where that makes their steps finer (`edge.model.qdq.scales`).
        is_padded: also those that padded convolutions read.
        has_zero_points: write activations in uint8, with centres as zero points, as OpenVINO takes them.
        is_float16: compute the rest in float16, for strongly typed TensorRT; decoding and scales stay in float32.
        has_float_weights: store weights in float, with a Q/DQ pair behind each.
    """
    graph = load_graph(model) if isinstance(model, Path) else model
    require_float32(graph, spec.name)
    _require_known(graph, keep_float, spec.name)
    graph = with_opset(graph, _OPSET, spec.name)
    placement = place(graph, keep_float)
    amax = group_ranges(graph, placement, ranges)
    _require_finite_in(np.finfo(np.float16 if is_float16 else np.float32), amax, spec.name)
    around = centres(graph, placement, amax, is_padded=is_padded) if is_centred else {}
    writer = _Writer(
        graph, means or {}, amax, around, has_zero_points=has_zero_points, has_float_weights=has_float_weights
    )
    writer.write(placement)
    editor = writer.draft
    if is_float16:
        halve(editor, spec.name, exact=writer.exact)
    editor.sweep()
    editor.graph()
    return QdqModel(
        model=editor.to_bytes(),
        quantized_nodes=tuple(called(node) for node in placement.quantized),
        float_nodes=tuple(called(node) for node in placement.floats),
        mac_share_int8=mac_share(graph, spec, placement.quantized),
        ranges=amax,
        centres=around,
        lowered=() if has_zero_points else tuple(sorted(moved_tensors(graph, placement).intersection(around))),
    )


def _float_weight(graph: Graph, node: Node) -> NDArray[np.float32]:
    weight = graph.constant(node.inputs[1])
    if weight is None or weight.dtype != np.float32:
        found = "none" if weight is None else weight.dtype
        raise ModelError(f"{called(node)}: expected a float32 weight, got {found}", hint="start from the float32 model")
    if not np.isfinite(weight).all():
        raise ModelError(f"{called(node)}: its weight holds values that are not finite", hint="export the model again")
    return weight


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
