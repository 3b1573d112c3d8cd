"""The kernels of `kernels.cu`, as calls that know their own grids."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.images import read_kernel_image
from edge.types import HISTOGRAM_BINS, ColourOrder, Preprocess

__all__ = ["AMAX_WORD", "CellLayout", "FLOAT_TYPES", "Kernels", "NOT_FINITE_WORD", "TALLY_WORDS", "ZEROS_WORD"]

FLOAT_TYPES = ("float32", "float16")
"""Types of tensors that there are kernels for, as numpy calls them."""

# Words of a tally, uint32, as `kernels.cu` has them: the bins come first.
ZEROS_WORD = HISTOGRAM_BINS
NOT_FINITE_WORD = HISTOGRAM_BINS + 1
AMAX_WORD = HISTOGRAM_BINS + 2
TALLY_WORDS = HISTOGRAM_BINS + 4

_THREADS = 256
_PIXELS_PER_THREAD = 4
_LARGEST_BLOCKS = 64  # a row's threads each look at many values, so that few of them meet at its result
_TALLY_BLOCKS = 128  # each has its own bins, and adds them to those of all
_MEANS_THREADS = 256  # as `kernels.cu` has it
_VALUES_PER_THREAD = 16  # or more, so that adding them is a small part of the work


class CellLayout(enum.IntEnum):
    """How the raw output of a head lies in memory; the numbers are those of `kernels.cu`."""

    PLANES = 0  # (B, 4 + K, A): scores behind the box
    OBJECTNESS = 1  # (B, A, 5 + K): objectness and scores behind the box
    SCORED = 2  # (B, A, 6): score and class behind the box


class Kernels:
    """The kernels for one GPU, which is current whenever something is called here.

    Addresses are the GPU's, streams are pycuda's. Nothing here waits.

    Args:
        gpu: that they are for.
        image: compiled, or to be compiled by the driver; None: the one for this GPU.

    Raises:
        EngineError: if there are no kernels for this GPU.
    """

    def __init__(self, gpu: Gpu, *, image: bytes | None = None) -> None:
        self._normalize: dict[str, Any] = {}
        self._candidates: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}
        self._tally: dict[str, tuple[Any, Any]] = {}
        self._widen: Any = None
        self._means: dict[str, Any] = {}
        image = image or read_kernel_image(gpu.compute_capability)
        major, minor = gpu.compute_capability
        with cuda_errors(f"loading the kernels for compute capability {major}.{minor}"):
            self._module: Any = cuda_driver().module_from_buffer(image)
            try:
                self._find()
            except BaseException:
                self.close()
                raise

    def function(self, name: str, arguments: str) -> Any:
        """Return another kernel, its arguments as `struct` writes them.

        Raises `EngineError` if this GPU has none of that name.
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

    def largest(self, stream: Any, values: int, *, rows: int, count: int, dtype: DTypeLike, found: int) -> None:
        """Put the largest |x| of each row of `count` values into `found`, float32 (rows,), 0 before."""
        blocks = min(-(-count // _THREADS), _LARGEST_BLOCKS)
        largest = self._largest[np.dtype(dtype).name]
        largest.prepared_async_call((blocks, rows), (_THREADS, 1, 1), stream, values, count, found)

    def tally(self, stream: Any, values: int, *, count: int, dtype: DTypeLike, tally: int) -> None:
        """Count |x| of `count` values into `tally`, uint32 (TALLY_WORDS,), 0 before the first of its arrays."""
        largest, counting = self._tally[np.dtype(dtype).name]
        threads, blocks = (_THREADS, 1, 1), -(-count // (_THREADS * _VALUES_PER_THREAD))
        largest.prepared_async_call((min(blocks, _LARGEST_BLOCKS), 1), threads, stream, values, count, tally)
        self._widen.prepared_async_call((1, 1), threads, stream, tally)
        counting.prepared_async_call((min(blocks, _TALLY_BLOCKS), 1), threads, stream, values, count, tally)

    def means(
        self, stream: Any, values: int, *, rows: int, channels: int, plane: int, dtype: DTypeLike, found: int
    ) -> None:
        """Put the mean of each channel of values (rows, channels, plane) into `found`, float64 (rows, channels)."""
        means = self._means[np.dtype(dtype).name]
        means.prepared_async_call((channels, rows), (_MEANS_THREADS, 1, 1), stream, values, plane, found)

    def close(self) -> None:
        self._normalize, self._candidates, self._largest, self._tally, self._means = {}, {}, {}, {}, {}
        self._widen = self._module = None

    def _find(self) -> None:
        self._normalize = {name: self._function(f"normalize_{name}", "PPII6f") for name in FLOAT_TYPES}
        self._candidates = {name: self._function(f"candidates_{name}", "PIIIfIPPP") for name in FLOAT_TYPES}
        self._largest = {name: self._function(f"largest_{name}", "PIP") for name in FLOAT_TYPES}
        self._means = {name: self._function(f"means_{name}", "PIP") for name in FLOAT_TYPES}
        self._widen = self._function("tally_widen", "P")
        self._tally = {
            name: (self._function(f"tally_largest_{name}", "PIP"), self._function(f"tally_count_{name}", "PIP"))
            for name in FLOAT_TYPES
        }

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
