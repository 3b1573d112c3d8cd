"""The kernels of `kernels.cu`, as calls that know their own grids."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.images import read_image
from edge.types import ColourOrder, Preprocess

__all__ = ["CellLayout", "FLOAT_TYPES", "Kernels"]

FLOAT_TYPES = ("float32", "float16")
"""Types of tensors that there are kernels for, as numpy calls them."""

_THREADS = 256
_PIXELS_PER_THREAD = 4
_LARGEST_BLOCKS = 64  # a row's threads each look at many values, so that few of them meet at its result


class CellLayout(enum.IntEnum):
    """How the raw output of a head lies in memory; the numbers are those of `kernels.cu`."""

    PLANES = 0  # (B, 4 + K, A): scores behind the box
    OBJECTNESS = 1  # (B, A, 5 + K): objectness and scores behind the box
    SCORED = 2  # (B, A, 6): score and class behind the box


class Kernels:
    """The kernels for one GPU, which is current whenever something is called here.

    Addresses are the GPU's, streams are pycuda's. Nothing here waits.

    Raises:
        EngineError: if there are no kernels for this GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        image = read_image(gpu.compute_capability)
        major, minor = gpu.compute_capability
        with cuda_errors(f"loading the kernels for compute capability {major}.{minor}"):
            self._module = import_pycuda().module_from_buffer(image)
            self._normalize = {name: self._function(f"normalize_{name}", "PPII6f") for name in FLOAT_TYPES}
            self._candidates = {name: self._function(f"candidates_{name}", "PIIIfIPPP") for name in FLOAT_TYPES}
            self._largest = self._function("largest_float32", "PIP")

    def function(self, name: str, arguments: str) -> Any:
        """Return another kernel, its arguments as `struct` writes them.

        Raises:
            EngineError: if this GPU has none of that name.
        """
        with cuda_errors(f"kernel {name}"):
            return self._function(name, arguments)

    def normalize(
        self, stream: Any, canvas: int, target: int, *, rows: int, preprocess: Preprocess, dtype: DTypeLike
    ) -> None:
        """Turn uint8 canvases (rows, H, W, 3) into the model's input (rows, 3, H, W) of `dtype`."""
        plane = preprocess.size.width * preprocess.size.height
        grid = (-(-plane // (_PIXELS_PER_THREAD * _THREADS)), rows)
        is_bgr = preprocess.colour_order is ColourOrder.BGR
        self._normalize[np.dtype(dtype).name].prepared_async_call(
            grid, (_THREADS, 1, 1), stream, canvas, target, plane, int(is_bgr), *_affine(preprocess)
        )

    def candidates(
        self,
        stream: Any,
        output: int,
        *,
        rows: int,
        cells: int,
        columns: int,
        layout: CellLayout,
        dtype: DTypeLike,
        score_threshold: float,
        capacity: int,
        found: int,
        keys: int,
        values: int,
    ) -> None:
        """Put the cells above the threshold into `keys`, uint32 (capacity,), and `values`, float32 (capacity, columns).

        In no order; a key is row * cells + cell. `found`, uint32, is 0 before and counts all, also those beyond
        `capacity`.
        """
        self._candidates[np.dtype(dtype).name].prepared_async_call(
            (-(-cells // _THREADS), rows),
            (_THREADS, 1, 1),
            stream,
            *(output, cells, columns, int(layout), float(np.float32(score_threshold)), capacity, found, keys, values),
        )

    def largest(self, stream: Any, values: int, *, rows: int, count: int, found: int) -> None:
        """Put the largest |x| of each row of `count` float32 values into `found`, float32 (rows,), 0 before."""
        blocks = min(-(-count // _THREADS), _LARGEST_BLOCKS)
        self._largest.prepared_async_call((blocks, rows), (_THREADS, 1, 1), stream, values, count, found)

    def close(self) -> None:
        """Unload them."""
        self._normalize, self._candidates, self._largest, self._module = {}, {}, None, None

    def _function(self, name: str, arguments: str) -> Any:
        function = self._module.get_function(name)
        function.prepare(arguments)
        return function


def _affine(preprocess: Preprocess) -> tuple[float, ...]:
    """Return gain and bias of each channel, in the order of the canvas: the kernel computes pixel * gain + bias."""
    gains = [preprocess.scale / std for std in preprocess.std]
    biases = [-mean / std for mean, std in zip(preprocess.mean, preprocess.std, strict=True)]
    if preprocess.colour_order is ColourOrder.BGR:
        gains, biases = gains[::-1], biases[::-1]
    return (*gains, *biases)
