"""Reductions of tensors on the GPU: all values, the largest |x|, counts of |x|, or means.

Each `Take` gets one inference after the other of a batch, between `begin` and `finish`; all of that only gives
work to one stream. `read` is for when the stream has done it. What it fills belongs to one canvas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.gpu import DeviceBuffer, HostArray, Owner
from edge.engine.cuda.kernels import AMAX_WORD, NOT_FINITE_WORD, TALLY_WORDS, ZEROS_WORD, Kernels
from edge.engine.tensorrt.tensors import Tensor
from edge.types import HISTOGRAM_BINS, MagnitudeCounts

__all__ = ["CANVASES", "Counts", "Inside", "Largest", "Means", "Take", "Whole"]

_WORD_BYTES = 4
_MEAN_BYTES = 8

CANVASES = 2
"""So many batches are on the host at once."""

Taken_co = TypeVar("Taken_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a `Take` is made for."""

    owner: Owner  # of its memory
    kernels: Kernels
    tensors: Sequence[Tensor]  # all that are given out, the input among them
    step: int  # rows of an inference
    rows: int  # of a batch, at most; whole steps

    def named(self, names: Collection[str]) -> list[Tensor]:
        return [one for one in self.tensors if one.name in names]

    def hosts(self, shape: tuple[int, ...], dtype: DTypeLike) -> list[HostArray]:
        """Return an array of the host for each canvas."""
        return [self.owner.keep(HostArray(shape, dtype, is_mapped=False)) for _ in range(CANVASES)]


class Take(Protocol[Taken_co]):
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

    def read(self, canvas: int, count: int) -> Mapping[str, Taken_co]:
        """Return what was taken of the first `count` rows, by name of the tensor."""
        ...


class Whole:
    """All values, float32 (count, ...): views where the engine gives float32."""

    def __init__(self, inside: Inside, names: Collection[str]) -> None:
        self._hosts = {
            one.name: inside.hosts((inside.rows * one.entries, *one.row_shape), one.dtype)
            for one in inside.named(names)
        }
        self._entries = {one.name: one.entries for one in inside.tensors}

    def begin(self, stream: Any) -> None:
        """Nothing is kept from inference to inference."""

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        if tensor.name in self._hosts:
            host = self._hosts[tensor.name][canvas]
            part = host.array[first * tensor.entries : (first + count) * tensor.entries]
            cuda_driver().memcpy_dtoh_async(part, address, stream)

    def finish(self, stream: Any, canvas: int) -> None:
        """All of it is on its way already."""

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float32]]:
        return {
            name: hosts[canvas].array[: count * self._entries[name]].astype(np.float32, copy=False)
            for name, hosts in self._hosts.items()
        }


class _Found:
    """What the GPU finds of a batch, in an array of `shape`; the host gets that array.

    `places`: where in it what is found of a tensor begins, by name.
    """

    def __init__(self, inside: Inside, shape: tuple[int, ...], dtype: DTypeLike, places: Mapping[str, int]) -> None:
        self._kernels, self._places = inside.kernels, places
        self._bytes = prod(shape) * np.dtype(dtype).itemsize
        self._found = inside.owner.keep(DeviceBuffer(self._bytes))
        self._hosts = inside.hosts(shape, dtype)

    def begin(self, stream: Any) -> None:
        cuda_driver().memset_d32_async(self._found.address, 0, self._bytes // _WORD_BYTES, stream)

    def finish(self, stream: Any, canvas: int) -> None:
        cuda_driver().memcpy_dtoh_async(self._hosts[canvas].array, self._found.address, stream)


class Largest(_Found):
    """The largest |x| of each inference, float32 (count,): for each of its rows. `names`: at least one."""

    def __init__(self, inside: Inside, names: Sequence[str]) -> None:
        self._step, self._steps = inside.step, inside.rows // inside.step
        places = {name: place for place, name in enumerate(names)}
        super().__init__(inside, (len(names), self._steps), np.float32, places)

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        place = self._places.get(tensor.name)
        if place is None:
            return
        found = self._found.address + (place * self._steps + first // self._step) * _WORD_BYTES
        self._kernels.largest(stream, address, rows=1, count=count * tensor.row_size, dtype=tensor.dtype, found=found)

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float32]]:
        found = self._hosts[canvas].array
        return {name: np.repeat(found[place], self._step)[:count] for name, place in self._places.items()}


class Counts(_Found):
    """How often which |x| occurred in a batch: some 8 KiB for each tensor. `names`: at least one."""

    def __init__(self, inside: Inside, names: Sequence[str]) -> None:
        places = {name: place for place, name in enumerate(names)}
        super().__init__(inside, (len(names), TALLY_WORDS), np.uint32, places)

    def add(self, stream: Any, canvas: int, tensor: Tensor, address: int, *, first: int, count: int) -> None:
        place = self._places.get(tensor.name)
        if place is None:
            return
        tally = self._found.address + place * TALLY_WORDS * _WORD_BYTES
        self._kernels.tally(stream, address, count=count * tensor.row_size, dtype=tensor.dtype, tally=tally)

    def read(self, canvas: int, count: int) -> dict[str, MagnitudeCounts]:
        return {name: _counted(self._hosts[canvas].array[place]) for name, place in self._places.items()}


class Means(_Found):
    """The mean of each channel of each row, float64 (count, channels).

    `names`: of tensors (channels, ...); at least one.
    """

    def __init__(self, inside: Inside, names: Collection[str]) -> None:
        tensors = inside.named(names)
        self._shapes = {one.name: (inside.rows, one.entries, one.row_shape[0]) for one in tensors}
        *begins, end = accumulate((prod(shape) for shape in self._shapes.values()), initial=0)
        super().__init__(inside, (end,), np.float64, dict(zip(self._shapes, begins, strict=True)))

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

    def read(self, canvas: int, count: int) -> dict[str, NDArray[np.float64]]:
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
