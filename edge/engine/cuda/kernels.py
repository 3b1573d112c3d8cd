"""The kernels of `kernels.cu`, as calls that know their own grids; and which of the compiled ones a GPU gets."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import Gpu
from edge.errors import EngineError
from edge.types import HISTOGRAM_BINS, ColourOrder, Preprocess

__all__ = [
    "AMAX_WORD",
    "CellLayout",
    "FLOAT_TYPES",
    "FOLDER",
    "INDEX",
    "Kernels",
    "NOT_FINITE_WORD",
    "SOURCE",
    "TALLY_WORDS",
    "TARGETS",
    "ZEROS_WORD",
    "image_name",
    "read_kernel_image",
]

SOURCE = Path(__file__).with_name("kernels.cu")
FOLDER = Path(__file__).with_name("compiled")
INDEX = FOLDER / "index.json"

_CUBINS = ((7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0))
_PTX = (8, 0)

TARGETS = {
    **{f"sm_{major}{minor}": f"sm_{major}{minor}.cubin" for major, minor in _CUBINS},
    "compute_{}{}".format(*_PTX): "compute_{}{}.ptx".format(*_PTX),
}
"""File in `FOLDER` by the architecture that it is compiled for."""


def image_name(compute_capability: tuple[int, int]) -> str:
    """Return the file for a GPU.

    A cubin runs on its own architecture: that it runs on later ones of the same major number, too, does not hold
    between a discrete GPU and a Jetson's. Raises `EngineError` if there is none.
    """
    major, minor = compute_capability
    if compute_capability in _CUBINS:
        return TARGETS[f"sm_{major}{minor}"]
    if compute_capability >= _PTX:
        return TARGETS["compute_{}{}".format(*_PTX)]
    shipped = ", ".join(f"{one}.{other}" for one, other in _CUBINS)
    raise EngineError(
        f"there are no kernels for a GPU of compute capability {major}.{minor}; there are for {shipped} and newer",
        hint="use engine.kind: auto",
    )


def read_kernel_image(compute_capability: tuple[int, int]) -> bytes:
    """Return the kernels for a GPU, as the driver takes them.

    Raises `EngineError` if there are none, or the installation lacks the file.
    """
    path = FOLDER / image_name(compute_capability)
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"the kernels are not installed: {error}", hint="install edge-deploy again") from error


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


# Of each kernel, as `struct` writes them.
_ARGUMENTS = {
    **{f"normalize_{name}": "PPII6f" for name in FLOAT_TYPES},
    **{f"candidates_{name}": "PIIIfIPPP" for name in FLOAT_TYPES},
    **{
        f"{what}_{name}": "PIP" for what in ("largest", "means", "tally_largest", "tally_count") for name in FLOAT_TYPES
    },
    "tally_widen": "P",
}


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

    Raises `EngineError` if there are no kernels for this GPU.
    """

    def __init__(self, gpu: Gpu, *, image: bytes | None = None) -> None:
        self._functions: dict[str, Any] = {}
        image = image or read_kernel_image(gpu.compute_capability)
        major, minor = gpu.compute_capability
        with cuda_errors(f"loading the kernels for compute capability {major}.{minor}"):
            self._module: Any = cuda_driver().module_from_buffer(image)
            try:
                for name, arguments in _ARGUMENTS.items():
                    self._functions[name] = self._function(name, arguments)
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
        self._functions[f"normalize_{np.dtype(dtype).name}"].prepared_async_call(
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
        self._functions[f"candidates_{np.dtype(dtype).name}"].prepared_async_call(
            (-(-cells // _THREADS), rows),
            (_THREADS, 1, 1),
            stream,
            *(output, cells, columns, int(layout), float(np.float32(score_threshold)), capacity, found, keys, values),
        )

    def largest(self, stream: Any, values: int, *, rows: int, count: int, dtype: DTypeLike, found: int) -> None:
        """Put the largest |x| of each row of `count` values into `found`, float32 (rows,), 0 before."""
        blocks = min(-(-count // _THREADS), _LARGEST_BLOCKS)
        largest = self._functions[f"largest_{np.dtype(dtype).name}"]
        largest.prepared_async_call((blocks, rows), (_THREADS, 1, 1), stream, values, count, found)

    def tally(self, stream: Any, values: int, *, count: int, dtype: DTypeLike, tally: int) -> None:
        """Count |x| of `count` values into `tally`, uint32 (TALLY_WORDS,), 0 before the first of its arrays."""
        kind = np.dtype(dtype).name
        largest, counting = self._functions[f"tally_largest_{kind}"], self._functions[f"tally_count_{kind}"]
        threads, blocks = (_THREADS, 1, 1), -(-count // (_THREADS * _VALUES_PER_THREAD))
        largest.prepared_async_call((min(blocks, _LARGEST_BLOCKS), 1), threads, stream, values, count, tally)
        self._functions["tally_widen"].prepared_async_call((1, 1), threads, stream, tally)
        counting.prepared_async_call((min(blocks, _TALLY_BLOCKS), 1), threads, stream, values, count, tally)

    def means(
        self, stream: Any, values: int, *, rows: int, channels: int, plane: int, dtype: DTypeLike, found: int
    ) -> None:
        """Put the mean of each channel of values (rows, channels, plane) into `found`, float64 (rows, channels)."""
        means = self._functions[f"means_{np.dtype(dtype).name}"]
        means.prepared_async_call((channels, rows), (_MEANS_THREADS, 1, 1), stream, values, plane, found)

    def close(self) -> None:
        self._functions, self._module = {}, None

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
