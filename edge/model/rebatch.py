"""Giving a model of batch one a dynamic batch, where its graph shows that images stay apart.

Every tensor that depends on the pixels has to keep the batch as the outermost part of its first axis (attention may
fold areas of an image in there too), and no operator may mix along that axis.
The equality of outputs is proven afterwards by somebody who has an engine: see `largest_difference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.cost import resolved_for_one
from edge.model.editor import ModelEditor
from edge.model.graph import Graph, Node, load_graph
from edge.model.node import POINTWISE
from edge.types import ModelSpec

__all__ = ["Rebatched", "largest_difference", "rebatch"]

BATCH_NAME = "batch"

# fmt: off
_EACH_IMAGE = frozenset((
    "AveragePool", "BatchNormalization", "Cast", "Conv", "ConvTranspose", "DepthToSpace", "DequantizeLinear", "Dropout",
    "GlobalAveragePool", "GlobalMaxPool", "Identity", "InstanceNormalization", "LRN", "MaxPool", "QuantizeLinear",
    "SpaceToDepth", "Upsample",
))
_ALONG_AXIS = frozenset((
    "ArgMax", "Concat", "Gather", "GatherElements", "LayerNormalization", "LogSoftmax", "Softmax", "Split", "TopK",
))
_REDUCING = frozenset(("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"))
# fmt: on
_DEFAULT_AXIS = {"Gather": 0, "GatherElements": 0, "Split": 0, "ArgMax": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebatched:
    """The rewritten file, or None and why not."""

    model: bytes | None
    reason: str


class _Unsafe(Exception):  # noqa: N818 - a finding
    """A node for which it cannot be shown that images stay apart; the text says which and why."""


def rebatch(model: Path | Graph, spec: ModelSpec) -> Rebatched:
    """Return `model` with a dynamic batch, where that is safe. Raises `ModelError` if the file cannot be read."""
    if spec.batch != 1:
        found = "dynamic already" if spec.batch is None else f"fixed to {spec.batch}, expected 1"
        return Rebatched(model=None, reason=f"the batch is {found}")
    graph = resolved_for_one(load_graph(model) if isinstance(model, Path) else model, spec)
    editor = ModelEditor(graph)
    try:
        for position, node in enumerate(graph.nodes):
            _rewrite(editor, graph, position, node)
        _declare(editor, graph, spec)
        editor.sweep()
        editor.graph()
    except _Unsafe as reason:
        return Rebatched(model=None, reason=str(reason))
    except ModelError as error:
        return Rebatched(model=None, reason=error.problem)
    return Rebatched(model=editor.to_bytes(), reason="every tensor keeps the batch on its first axis")


def largest_difference(
    run_one: Callable[[NDArray[Any]], NDArray[Any]],
    run_batch: Callable[[NDArray[Any]], NDArray[Any]],
    images: NDArray[Any],
) -> float:
    """Return the largest absolute difference between one run over all `images` and a run for each of them.

    `run_one`: the original; takes (1, ...) and returns (1, ...). `run_batch`: the rewritten model; takes (B, ...) and
    returns (B, ...). `images`: (B, ...), B two or more and all different, or nothing is proven. Returns: Infinity when
    the shapes differ.
    """
    singles = np.concatenate([run_one(images[i : i + 1]) for i in range(len(images))])
    together = run_batch(images)
    if singles.shape != together.shape:
        return math.inf
    return float(np.abs(singles.astype(np.float64) - together.astype(np.float64)).max())


def _declare(editor: ModelEditor, graph: Graph, spec: ModelSpec) -> None:
    size = spec.preprocess.size
    editor.set_shape(spec.input_name, (BATCH_NAME, 3, size.height, size.width))
    for info in graph.outputs:
        rows, *others = _shape(graph, info.name)
        if rows != 1:
            raise _Unsafe(f"output {info.name}: its first axis has {rows} entries for one image")
        editor.set_shape(info.name, (BATCH_NAME, *others))


def _rewrite(editor: ModelEditor, graph: Graph, position: int, node: Node) -> None:
    """Show that one node keeps images apart, changing its constants where they fix the batch."""
    if not any(graph.is_varying(name) for name in node.inputs if name) or node.op_type == "Shape":
        return
    _freeze_constants(editor, graph, position, node)
    _require_equal_first_axes(graph, node)
    if node.op_type in ("Reshape", "Resize"):
        (_rewrite_reshape if node.op_type == "Reshape" else _rewrite_resize)(editor, graph, position, node)
    elif not _keeps_images_apart(graph, node):
        raise _Unsafe(f"{_called(node)}: it is not known to keep images apart")


def _freeze_constants(editor: ModelEditor, graph: Graph, position: int, node: Node) -> None:
    """Make operands that are computed from shapes stored ones, so that none of them follows the batch.

    Others are left alone: dequantized weights have to stay int8.
    """
    for index, name in enumerate(node.inputs):
        if name and not graph.is_varying(name) and any(maker.op_type == "Shape" for maker in graph.ancestors(name)):
            value = graph.constant(name)
            if value is None:
                raise _Unsafe(
                    f"{_called(node)}: its operand {name} is computed from shapes in a way that cannot be folded"
                )
            editor.set_constant_input(position, index, value)


def _require_equal_first_axes(graph: Graph, node: Node) -> None:
    """Only a Reshape may change the first axis: it keeps the order of values, so that the batch stays outermost."""
    tensors = [name for name in node.inputs if graph.is_varying(name)] + [name for name in node.outputs if name]
    shapes = [_shape(graph, name) for name in tensors]
    is_equal = len({shape[:1] for shape in shapes}) == 1
    if not all(shapes) or not (is_equal or node.op_type == "Reshape"):
        listed = ", ".join(f"{name} {shape}" for name, shape in zip(tensors, shapes, strict=True))
        raise _Unsafe(f"{_called(node)}: not all of its tensors have the batch on their first axis: {listed}")


def _keeps_images_apart(graph: Graph, node: Node) -> bool:
    kind, rank = node.op_type, len(_shape(graph, node.outputs[0]))
    varying = [name for name in node.inputs if graph.is_varying(name)]
    if kind in POINTWISE:
        return all(len(_shape(graph, name)) == rank for name in varying) and _is_spread(graph, node, rank)
    if kind in _EACH_IMAGE:
        return varying == [node.inputs[0]]
    if kind in _ALONG_AXIS:
        return _is_along_other_axis(graph, node, varying)
    if kind in _REDUCING or kind in ("Squeeze", "Unsqueeze", "Slice"):
        return 0 not in _axes(graph, node)
    return _is_special_case(graph, node, varying)


def _is_spread(graph: Graph, node: Node, rank: int) -> bool:
    """Return whether no constant operand has an entry for each position of the first axis."""
    shapes = [_shape(graph, name) for name in node.inputs if name and not graph.is_varying(name)]
    return all(len(shape) < rank or shape[0] == 1 for shape in shapes)


def _is_along_other_axis(graph: Graph, node: Node, varying: list[str]) -> bool:
    if node.op_type in ("Concat", "GatherElements"):
        if varying != list(dict.fromkeys(node.inputs)):
            raise _Unsafe(f"{_called(node)}: it joins a constant of batch one with the images")
    elif varying != [node.inputs[0]]:
        return False
    default = _DEFAULT_AXIS.get(node.op_type, 1 if graph.opset < 13 else -1)
    return bool(node.attributes.get("axis", default) % len(_shape(graph, node.inputs[0])) != 0)


def _is_special_case(graph: Graph, node: Node, varying: list[str]) -> bool:
    is_first_only = varying == [node.inputs[0]]
    match node.op_type:
        case "Transpose":
            return bool(node.attributes.get("perm", (-1,))[0] == 0)
        case "Flatten":
            return bool(node.attributes.get("axis", 1) == 1)
        case "Gemm":
            return is_first_only and not node.attributes.get("transA", 0)
        case "MatMul":
            ranks = {len(_shape(graph, name)) for name in varying}
            is_shared = is_first_only and _is_spread(graph, node, len(_shape(graph, node.outputs[0])))
            return is_shared or (len(varying) == 2 and len(ranks) == 1 and min(ranks) > 2)
        case "Expand":
            wanted = graph.constant(node.inputs[1])
            rank = len(_shape(graph, node.outputs[0]))
            is_kept = wanted is not None and (len(wanted) < rank or wanted[0] == 1)
            return is_first_only and len(_shape(graph, varying[0])) == rank and is_kept
        case "Tile":
            return is_first_only  # the first axis is as long as before, so that it is not repeated
        case "Pad":
            return is_first_only and "axes" not in node.attributes and len(node.inputs) < 4
    return False


def _axes(graph: Graph, node: Node) -> list[int]:
    """Return the axes that a node works on, from its attribute or its input; all when it names none."""
    longer = max((*node.inputs[:1], *node.outputs[:1]), key=lambda name: len(_shape(graph, name)))
    rank = len(_shape(graph, longer))
    named = node.attributes.get("axes")
    if named is None:
        source = node.input(3 if node.op_type == "Slice" else 1)
        value = graph.constant(source) if source else None
        named = list(range(rank)) if value is None else [int(axis) for axis in value.reshape(-1)]
    return [axis % rank for axis in named]


def _rewrite_reshape(editor: ModelEditor, graph: Graph, position: int, node: Node) -> None:
    """Let the first dimension follow the batch; the others are written out."""
    shape = _shape(graph, node.outputs[0])
    if graph.is_varying(node.inputs[1]):
        raise _Unsafe(f"{_called(node)}: its shape depends on the pixels")
    editor.set_constant_input(position, 1, np.array([-1, *shape[1:]], np.int64))


def _rewrite_resize(editor: ModelEditor, graph: Graph, position: int, node: Node) -> None:
    """Replace a size that fixes the batch by whole factors; factors leave the batch alone."""
    if "axes" in node.attributes or not node.input(3):
        return
    before, after = _shape(graph, node.inputs[0]), _shape(graph, node.outputs[0])
    if any(new % old for old, new in zip(before, after, strict=True)):
        raise _Unsafe(f"{_called(node)}: from {before} to {after} is not a whole factor")
    factors = np.array([new // old for old, new in zip(before, after, strict=True)], np.float32)
    editor.set_constant_input(position, 2, factors)
    editor.set_input(position, 3, "")


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    shape = graph.shape(name)
    if shape is None:
        raise _Unsafe(f"the shape of {name} cannot be inferred")
    return shape


def _called(node: Node) -> str:
    return f"{node.op_type} {node.name or node.outputs[0]}"
