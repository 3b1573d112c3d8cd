"""Which tensors an engine has, how large they are on the GPU, and how a head's cells lie in the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edge.engine.cuda.kernels import FLOAT_TYPES, CellLayout
from edge.engine.tensorrt.plan import PlanHeader, PlanTensor
from edge.errors import EngineError
from edge.types import HeadFamily, ModelSpec

__all__ = ["Cells", "Tensor", "Tensors", "input_of", "tensors_of"]

_LAYOUTS = {
    HeadFamily.YOLOV5: CellLayout.OBJECTNESS,
    HeadFamily.YOLOV8: CellLayout.PLANES,
    HeadFamily.YOLOV10: CellLayout.SCORED,
    HeadFamily.YOLOX: CellLayout.OBJECTNESS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output: `row_shape` is its shape without the batch."""

    name: str
    row_shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def row_size(self) -> int:
        """Values of one row."""
        return prod(self.row_shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.row_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What is to be known of a raw output to pick cells out of it."""

    count: int
    columns: int
    layout: CellLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """What goes in and comes out; `output` is the one that detections are read from, `others` are let be."""

    input: Tensor
    output: Tensor
    others: tuple[Tensor, ...]
    cells: Cells | None


def tensors_of(header: PlanHeader, spec: ModelSpec, shape_of: Callable[[str], tuple[int, ...]]) -> Tensors:
    """Return the tensors of a plan.

    Args:
        header: of the plan.
        spec: what the model is.
        shape_of: the shape of an output whose sides are open in the plan, once the input's are known.

    Raises:
        EngineError: if they are not those of `spec`, or of a type that there are no kernels for.
    """
    source, result = input_of(header, spec), _named(header.outputs, spec.output_name, spec)
    others = (one for one in header.outputs if one.name != spec.output_name)
    output = _output(result, spec, shape_of)
    return Tensors(
        input=source,
        output=output,
        others=tuple(_output(one, spec, shape_of) for one in others),
        cells=_cells(output, spec.family),
    )


def input_of(header: PlanHeader, spec: ModelSpec) -> Tensor:
    """Return what the images go into.

    Raises:
        EngineError: if it is not as `spec` says.
    """
    if len(header.inputs) != 1:
        raise EngineError(f"{spec.name}: the plan has {len(header.inputs)} inputs; a detector has one, the images")
    info = _named(header.inputs, spec.input_name, spec)
    row_shape = (3, spec.preprocess.size.height, spec.preprocess.size.width)
    fits = len(info.shape) == 4 and all(
        side in (-1, wanted) for side, wanted in zip(info.shape[1:], row_shape, strict=True)
    )
    if not fits:
        raise EngineError(
            f"{spec.name}: the plan takes {list(info.shape)}, the model (B, {', '.join(map(str, row_shape))})"
        )
    return _tensor(info, row_shape, spec)


def _named(infos: Sequence[PlanTensor], name: str, spec: ModelSpec) -> PlanTensor:
    for info in infos:
        if info.name == name:
            return info
    known = ", ".join(info.name for info in infos)
    raise EngineError(f"{spec.name}: the plan has no tensor {name!r}, but {known}", hint="build it again")


def _output(info: PlanTensor, spec: ModelSpec, shape_of: Callable[[str], tuple[int, ...]]) -> Tensor:
    is_open = len(info.shape) < 2 or min(info.shape[1:]) < 1
    return _tensor(info, (shape_of(info.name) if is_open else info.shape)[1:], spec)


def _tensor(info: PlanTensor, row_shape: tuple[int, ...], spec: ModelSpec) -> Tensor:
    if info.dtype not in FLOAT_TYPES or not row_shape or min(row_shape) < 1:
        raise EngineError(
            f"{spec.name}: tensor {info.name!r} is {info.dtype} (B, {', '.join(map(str, row_shape))}); "
            f"expected {' or '.join(FLOAT_TYPES)}, of known size"
        )
    return Tensor(name=info.name, row_shape=tuple(row_shape), dtype=np.dtype(info.dtype))


def _cells(output: Tensor, family: HeadFamily) -> Cells | None:
    if len(output.row_shape) != 2:
        return None
    layout = _LAYOUTS[family]
    first, second = output.row_shape
    count, columns = (second, first) if layout is CellLayout.PLANES else (first, second)
    return Cells(count=count, columns=columns, layout=layout)
