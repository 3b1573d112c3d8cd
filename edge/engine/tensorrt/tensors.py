"""Which tensors an engine has, how large they are on the GPU, and how a head's cells lie in the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edge.engine.cuda.kernels import FLOAT_TYPES, CellLayout
from edge.engine.tensorrt.plan import PlanHeader, TensorInfo
from edge.errors import EngineError
from edge.types import HeadFamily, ModelSpec

__all__ = ["Cells", "Tensor", "Tensors", "tensors_of"]

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
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.row_shape) * self.dtype.itemsize


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


def tensors_of(header: PlanHeader, spec: ModelSpec) -> Tensors:
    """Return the tensors of a plan.

    Raises:
        EngineError: if they are not those of `spec`, or of a type or shape that is not known before it runs.
    """
    if len(header.inputs) != 1:
        raise EngineError(f"{spec.name}: the plan has {len(header.inputs)} inputs; a detector has one, the images")
    source = _tensor(_named(header.inputs, spec.input_name, spec), spec)
    result = _tensor(_named(header.outputs, spec.output_name, spec), spec)
    size = spec.preprocess.size
    if source.row_shape != (3, size.height, size.width):
        raise EngineError(f"{spec.name}: the plan takes {source.row_shape}, the model {(3, size.height, size.width)}")
    others = tuple(_tensor(one, spec) for one in header.outputs if one.name != spec.output_name)
    return Tensors(input=source, output=result, others=others, cells=_cells(result, spec.family))


def _named(infos: Sequence[TensorInfo], name: str, spec: ModelSpec) -> TensorInfo:
    for info in infos:
        if info.name == name:
            return info
    known = ", ".join(info.name for info in infos)
    raise EngineError(f"{spec.name}: the plan has no tensor {name!r}, but {known}", hint="build it again")


def _tensor(info: TensorInfo, spec: ModelSpec) -> Tensor:
    row_shape = info.shape[1:]
    if info.dtype not in FLOAT_TYPES or not row_shape or min(row_shape) < 1:
        raise EngineError(
            f"{spec.name}: tensor {info.name!r} is {info.dtype} {list(info.shape)}; "
            f"expected {' or '.join(FLOAT_TYPES)} with only the batch open"
        )
    return Tensor(name=info.name, row_shape=row_shape, dtype=np.dtype(info.dtype))


def _cells(output: Tensor, family: HeadFamily) -> Cells | None:
    if len(output.row_shape) != 2:
        return None
    layout = _LAYOUTS[family]
    first, second = output.row_shape
    count, columns = (second, first) if layout is CellLayout.PLANES else (first, second)
    return Cells(count=count, columns=columns, layout=layout)
