"""Results of a batch on the host: all of the raw output, or the cells of it that can hold a detection."""

from __future__ import annotations

import functools
import logging
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, HostArray, Owner
from edge.engine.tensorrt.tensors import Cells, Tensor
from edge.types import CandidateRows, EngineOutput

__all__ = ["CandidateResult", "RawResult", "Result"]

_log = logging.getLogger(__name__)
_PLACES_PER_FRAME = 1024  # cells of 640 x 640 above a score of 0.25 in a crowd: some hundreds


class Result(Protocol):
    """Brings the output of a batch to the host; everything but `read` only gives work to a stream."""

    def issue(self, stream: Any, rows: int) -> None:
        """Begin to bring over the first `rows` rows, behind what is in the stream."""
        ...

    def read(self, count: int) -> EngineOutput:
        """Return the output of the first `count` rows, once the stream has done what `issue` gave it."""
        ...


class RawResult:
    """The whole output, float32 (count, ...), in pinned memory.

    Args:
        source: where it lies on the GPU.
        rows: of it, at most.
    """

    def __init__(self, owner: Owner, output: Tensor, source: DeviceBuffer, *, rows: int) -> None:
        self._source = source
        self._host = owner.keep(HostArray((rows, *output.row_shape), output.dtype, is_mapped=False))

    def issue(self, stream: Any, rows: int) -> None:
        cuda_driver().memcpy_dtoh_async(self._host.array[:rows], self._source.address, stream)

    def read(self, count: int) -> NDArray[np.float32]:
        """Return a view where the engine gives float32."""
        return self._host.array[:count].astype(np.float32, copy=False)


class CandidateResult:
    """The cells above a threshold, written by the GPU straight into memory of the host.

    Where there are more than places for them, the raw output is copied instead and that is logged: the detections are
    the same, the batch takes longer.

    Args:
        output: what comes out, and its `cells`.
        source: where it lies on the GPU.
        rows: of it, at most.
        name: of the model, for the log.
    """

    def __init__(
        self,
        owner: Owner,
        kernels: Kernels,
        output: Tensor,
        cells: Cells,
        source: DeviceBuffer,
        *,
        rows: int,
        score_threshold: float,
        name: str,
    ) -> None:
        self._kernels, self._output, self._cells, self._source = kernels, output, cells, source
        self._rows, self._name = rows, name
        self._threshold = score_threshold
        self._capacity = min(cells.count, _PLACES_PER_FRAME) * rows
        self._counter = owner.keep(DeviceBuffer(4))
        self._found = owner.keep(HostArray((1,), np.uint32, is_mapped=False))
        self._keys = owner.keep(HostArray((self._capacity,), np.uint32, is_mapped=True))
        self._values = owner.keep(HostArray((self._capacity, cells.columns), np.float32, is_mapped=True))
        self._is_crowded = False

    def issue(self, stream: Any, rows: int) -> None:
        cuda = cuda_driver()
        cuda.memset_d32_async(self._counter.address, 0, 1, stream)
        self._kernels.candidates(
            stream,
            self._source.address,
            rows=rows,
            cells=self._cells.count,
            columns=self._cells.columns,
            layout=self._cells.layout,
            dtype=self._output.dtype,
            score_threshold=self._threshold,
            capacity=self._capacity,
            found=self._counter.address,
            keys=self._keys.address,
            values=self._values.address,
        )
        cuda.memcpy_dtoh_async(self._found.array, self._counter.address, stream)

    def read(self, count: int) -> EngineOutput:
        """Return the cells in the order of the output, or all of it where they were too many."""
        found = int(self._found.array[0])
        if found > self._capacity:
            level = logging.DEBUG if self._is_crowded else logging.WARNING
            _log.log(level, "candidates overflow model=%s found=%d places=%d", self._name, found, self._capacity)
            self._is_crowded = True
            return self._all_of_it(count)
        keys = self._keys.array[:found]
        order = np.argsort(keys)
        row, cell = np.divmod(keys[order].astype(np.int64), self._cells.count)
        kept = int(np.searchsorted(row, count))  # rows behind the last frame hold what they held before
        return CandidateRows(
            row=row[:kept],
            cell=cell[:kept],
            values=self._values.array[order[:kept]],
            score_threshold=self._threshold,
            whole=functools.partial(self._all_of_it, count),
        )

    def _all_of_it(self, count: int) -> NDArray[np.float32]:
        whole = np.empty((count, *self._output.row_shape), self._output.dtype)
        with cuda_errors("copying the whole output"):
            cuda_driver().memcpy_dtoh(whole, self._source.address)
        return whole.astype(np.float32, copy=False)
