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
    """An input or output."""

    name: str
    row_shape: tuple[int, ...]  # its shape without the first axis
    dtype: np.dtype[np.generic]
    entries: int = 1  # of the first axis for each row: attention over areas has several

    @property
    def row_size(self) -> int:
        """Values of one row."""
        return self.entries * prod(self.row_shape)

    @property
    def row_bytes(self) -> int:
        return self.row_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Layout of a raw output, to pick cells out of it."""

    count: int
    columns: int
    layout: CellLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Inputs and outputs of an engine; `output` is the one that detections are read from, `others` are let be."""

    input: Tensor
    output: Tensor
    others: tuple[Tensor, ...]
    cells: Cells | None


def tensors_of(
    header: PlanHeader, spec: ModelSpec, shape_of: Callable[[str], tuple[int, ...]], *, rows: int
) -> Tensors:
    """Return the tensors of a plan.

    Args:
        shape_of: the shape of an output, once the input's is known.
        rows: that the input is known to be of.

    Raises `EngineError` if they are not those of `spec`, or of a type that there are no kernels for.
    """
    source, result = input_of(header, spec), _named(header.outputs, spec.output_name, spec)
    others = (one for one in header.outputs if one.name != spec.output_name)
    output = _output(result, spec, shape_of, rows)
    return Tensors(
        input=source,
        output=output,
        others=tuple(_output(one, spec, shape_of, rows) for one in others),
        cells=_cells(output, spec.family, len(spec.labels)),
    )


def input_of(header: PlanHeader, spec: ModelSpec) -> Tensor:
    """Raises `EngineError` if it is not as `spec` says."""
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
    return _tensor(info, (1, *row_shape), spec, rows=1)


def _named(infos: Sequence[PlanTensor], name: str, spec: ModelSpec) -> PlanTensor:
    for info in infos:
        if info.name == name:
            return info
    known = ", ".join(info.name for info in infos)
    raise EngineError(f"{spec.name}: the plan has no tensor {name!r}, but {known}", hint="build it again")


def _output(info: PlanTensor, spec: ModelSpec, shape_of: Callable[[str], tuple[int, ...]], rows: int) -> Tensor:
    shape = shape_of(info.name) if len(info.shape) < 2 or min(info.shape) < 1 else info.shape
    return _tensor(info, shape, spec, rows)


def _tensor(info: PlanTensor, shape: Sequence[int], spec: ModelSpec, rows: int) -> Tensor:
    if info.dtype not in FLOAT_TYPES or len(shape) < 2 or min(shape) < 1 or shape[0] % rows:
        raise EngineError(
            f"{spec.name}: tensor {info.name!r} is {info.dtype} ({', '.join(map(str, shape))}) for {rows} images; "
            f"expected {' or '.join(FLOAT_TYPES)}, of known size, images first"
        )
    return Tensor(name=info.name, row_shape=tuple(shape[1:]), dtype=np.dtype(info.dtype), entries=shape[0] // rows)


def _cells(output: Tensor, family: HeadFamily, classes: int) -> Cells | None:
    if len(output.row_shape) != 2:
        return None
    layout = _LAYOUTS[family]
    first, second = output.row_shape
    count, columns = (second, first) if layout is CellLayout.PLANES else (first, second)
    if layout is not CellLayout.SCORED and columns > classes + (4 if layout is CellLayout.PLANES else 5):
        return None  # the kernel takes all that follows the box for scores: a keypoint in pixels would be one of 300
    return Cells(count=count, columns=columns, layout=layout)
