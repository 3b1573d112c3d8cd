"""Reductions of tensors on the GPU: all values, the largest |x|, counts of |x|, or means.

Each `Take` gets one inference after the other of a batch, between `begin` and `finish`; all of that only gives
work to one stream. `read` is for when the stream has done it. What it fills belongs to one canvas.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.kernels import AMAX_WORD, NOT_FINITE_WORD, TALLY_WORDS, ZEROS_WORD, Kernels
from edge.engine.cuda.memory import DeviceBuffer, HostArray, Owner
from edge.engine.tensorrt.tensors import Tensor
from edge.types import HISTOGRAM_BINS, MagnitudeCounts

__all__ = ["Counts", "Largest", "Means", "Take", "Whole"]

_WORD_BYTES = 4
_MEAN_BYTES = 8


class Take(Protocol):
    """Takes something of some tensors."""

    def begin(self, stream: Any) -> None:
        """Begin a batch."""
        ...

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        """Take of a tensor, if it is one of its own, `count` rows at `address`, those from `first` on of the batch."""
        ...

    def finish(self, stream: Any, canvas: int) -> None:
        """Begin to bring to the host what was taken of the batch."""
        ...


class Whole:
    """All values.

    Args:
        rows: of a batch, at most.
        canvases: how many batches are on the host at once.
    """

    def __init__(self, owner: Owner, tensors: Sequence[Tensor], *, rows: int, canvases: int) -> None:
        self._entries = {one.name: one.entries for one in tensors}
        shapes = {one.name: (rows * one.entries, *one.row_shape) for one in tensors}
        self._hosts = [
            {one.name: owner.keep(HostArray(shapes[one.name], one.dtype, is_mapped=False)) for one in tensors}
            for _ in range(canvases)
        ]

    def begin(self, stream: Any) -> None:
        """Nothing is kept from inference to inference."""

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        host = self._hosts[canvas].get(tensor.name)
        if host is not None:
            part = host.array[first * tensor.entries : (first + count) * tensor.entries]
            cuda_driver().memcpy_dtoh_async(part, address, stream)

    def finish(self, stream: Any, canvas: int) -> None:
        """All of it is on its way already."""

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float32]]:
        """Return the first `count` rows by name: views where the engine gives float32."""
        hosts = self._hosts[canvas].items()
        return {name: host.array[: count * self._entries[name]].astype(np.float32, copy=False) for name, host in hosts}


class Largest:
    """The largest |x| of each inference; the GPU finds it.

    Args:
        names: of the tensors; at least one.
        step: rows of an inference.
        rows: of a batch, at most; whole steps.
        canvases: how many batches are on the host at once.
    """

    def __init__(
        self, owner: Owner, kernels: Kernels, names: Sequence[str], *, step: int, rows: int, canvases: int
    ) -> None:
        self._kernels, self._step = kernels, step
        self._places = {name: place for place, name in enumerate(names)}
        shape = (len(names), rows // step)
        self._steps, self._words = shape[1], len(names) * shape[1]
        self._found = owner.keep(DeviceBuffer(self._words * _WORD_BYTES))
        self._hosts = [owner.keep(HostArray(shape, np.float32, is_mapped=False)) for _ in range(canvases)]

    def begin(self, stream: Any) -> None:
        cuda_driver().memset_d32_async(self._found.address, 0, self._words, stream)

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        place = self._places.get(tensor.name)
        if place is None:
            return
        found = self._found.address + (place * self._steps + first // self._step) * _WORD_BYTES
        self._kernels.largest(stream, address, rows=1, count=count * tensor.row_size, dtype=tensor.dtype, found=found)

    def finish(self, stream: Any, canvas: int) -> None:
        cuda_driver().memcpy_dtoh_async(self._hosts[canvas].array, self._found.address, stream)

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float32]]:
        """Return it by name, float32 (count,): that of an inference for each of its rows."""
        found = self._hosts[canvas].array
        return {name: np.repeat(found[place], self._step)[:count] for name, place in self._places.items()}


class Counts:
    """How often which |x| occurred in a batch; the GPU counts, and the host gets some 8 KiB for each tensor.

    Args:
        names: of the tensors; at least one.
        canvases: how many batches are on the host at once.
    """

    def __init__(self, owner: Owner, kernels: Kernels, names: Sequence[str], *, canvases: int) -> None:
        self._kernels = kernels
        self._places = {name: place for place, name in enumerate(names)}
        self._words = len(names) * TALLY_WORDS
        self._tallies = owner.keep(DeviceBuffer(self._words * _WORD_BYTES))
        shape = (len(names), TALLY_WORDS)
        self._hosts = [owner.keep(HostArray(shape, np.uint32, is_mapped=False)) for _ in range(canvases)]

    def begin(self, stream: Any) -> None:
        cuda_driver().memset_d32_async(self._tallies.address, 0, self._words, stream)

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        place = self._places.get(tensor.name)
        if place is None:
            return
        tally = self._tallies.address + place * TALLY_WORDS * _WORD_BYTES
        self._kernels.tally(stream, address, count=count * tensor.row_size, dtype=tensor.dtype, tally=tally)

    def finish(self, stream: Any, canvas: int) -> None:
        cuda_driver().memcpy_dtoh_async(self._hosts[canvas].array, self._tallies.address, stream)

    def read(self, canvas: int) -> dict[str, MagnitudeCounts]:
        return {name: _counted(self._hosts[canvas].array[place]) for name, place in self._places.items()}


class Means:
    """The mean of each channel of each row; the GPU adds, and the host gets one float64 for each.

    Args:
        tensors: (channels, ...) each; at least one.
        rows: of a batch, at most.
        canvases: how many batches are on the host at once.
    """

    def __init__(self, owner: Owner, kernels: Kernels, tensors: Sequence[Tensor], *, rows: int, canvases: int) -> None:
        self._kernels = kernels
        self._shapes = {one.name: (rows, one.entries, one.row_shape[0]) for one in tensors}
        ends = np.cumsum([prod(shape) for shape in self._shapes.values()])
        self._places = dict(zip(self._shapes, (0, *ends.tolist()), strict=False))
        self._found = owner.keep(DeviceBuffer(int(ends[-1]) * _MEAN_BYTES))
        self._hosts = [owner.keep(HostArray((int(ends[-1]),), np.float64, is_mapped=False)) for _ in range(canvases)]

    def begin(self, stream: Any) -> None:
        """The values of each batch replace those of the one before."""

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        place = self._places.get(tensor.name)
        if place is None:
            return
        channels, *plane = tensor.row_shape
        found = self._found.address + (place + first * tensor.entries * channels) * _MEAN_BYTES
        rows, plane_size = count * tensor.entries, prod(plane)
        self._kernels.means(
            stream, address, rows=rows, channels=channels, plane=plane_size, dtype=tensor.dtype, found=found
        )

    def finish(self, stream: Any, canvas: int) -> None:
        cuda_driver().memcpy_dtoh_async(self._hosts[canvas].array, self._found.address, stream)

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float64]]:
        """Return those of the first `count` rows by name, float64 (count, channels)."""
        found = self._hosts[canvas].array
        return {
            name: found[place : place + prod(self._shapes[name])].reshape(self._shapes[name])[:count].mean(axis=1)
            for name, place in self._places.items()
        }


def _counted(words: NDArray[np.uint32]) -> MagnitudeCounts:
    return MagnitudeCounts(
        counts=words[:HISTOGRAM_BINS].astype(np.int64),
        zeros=int(words[ZEROS_WORD]),
        not_finite=int(words[NOT_FINITE_WORD]),
        amax=float(words[AMAX_WORD : AMAX_WORD + 1].view(np.float32)[0]),
    )
