"""One canvas and everything behind it: its copy on the GPU, the model's input and output, what the host gets."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import CudaEvent, CudaGraph, DeviceBuffer, Gpu, HostArray, Owner, Stream, capture
from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.runner import Executions
from edge.engine.tensorrt.tensors import Cells, Tensor, Tensors
from edge.errors import EngineError
from edge.types import CandidateRows, EngineOutput, Preprocess

__all__ = ["COPY", "CandidateResult", "RawResult", "Result", "Slot", "canvas_of"]

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


COPY = ""  # of a canvas on the GPU; no tensor has that name


def canvas_of(gpu: Gpu, preprocess: Preprocess, rows: int) -> HostArray:
    """Return a canvas, uint8 (rows, H, W, 3), border value everywhere: mapped where the GPU shares the memory."""
    size = preprocess.size
    canvas = HostArray((rows, size.height, size.width, 3), np.uint8, is_mapped=gpu.is_integrated)
    canvas.array[:] = preprocess.pad_value
    return canvas


class Slot:
    """Runs its canvas in its stream. All calls are made while the GPU is current.

    Args:
        owner: of its memory and graphs, closed when nothing runs in `stream` any more.
        rows: of the canvas, whole steps of them.
        step: rows of one inference, where the model fixes them; None: it takes as many as come.
        stream: in which it runs; that of the other slot, too.
        shared: memory that the slots use in turn: of all tensors but the output, and of a canvas under `COPY`.
        make_result: from where the output lies on the GPU to what brings it over.
    """

    def __init__(
        self,
        owner: Owner,
        gpu: Gpu,
        kernels: Kernels,
        *,
        preprocess: Preprocess,
        tensors: Tensors,
        rows: int,
        step: int | None,
        stream: Stream,
        executions: Executions,
        shared: Mapping[str, DeviceBuffer],
        make_result: Callable[[DeviceBuffer], Result],
    ) -> None:
        self._cuda, self._kernels, self._owner = cuda_driver(), kernels, owner
        self._preprocess, self._tensors = preprocess, tensors
        self._rows, self._step = rows, step
        self._stream, self._executions = stream, executions
        self._event = owner.keep(CudaEvent())
        self.canvas = owner.keep(canvas_of(gpu, preprocess, rows))
        self._copy = shared.get(COPY)
        output = owner.keep(DeviceBuffer(rows * tensors.output.row_bytes))
        self._buffers = {**shared, tensors.output.name: output}
        self._result = make_result(output)
        self._replays: dict[int, CudaGraph] = {}
        self._captures, self._is_singly = not executions.has_own_graphs, False
        self._done: set[int] = set()
        self._count = 0

    def start(self, count: int) -> None:
        """Give the first `count` rows to the stream, from the second time that they are as many on as a graph.

        The first time TensorRT does what may not be captured. Raises `EngineError` if CUDA or TensorRT refuses.
        """
        self._count = count
        rows = self._rows_for(count)
        if self._captures and not self._is_singly and rows in self._done and rows not in self._replays:
            self._capture(rows)
        with cuda_errors("starting an inference"):
            if rows in self._replays and not self._is_singly:
                self._replays[rows].launch(self._stream.handle)
            else:
                self._issue(rows)
            self._event.record(self._stream)
        self._done.add(rows)

    def wait(self) -> EngineOutput:
        """Raises `EngineError` if the inference failed."""
        self._finish()
        return self._result.read(self._count)

    def prepare(self) -> None:
        """Infer a full batch, and capture it. Raises `EngineError` if the inference fails."""
        self.start(self._rows)
        self._finish()
        if self._captures:
            self._capture(self._rows)

    @contextlib.contextmanager
    def singly(self) -> Iterator[None]:
        """Give work singly meanwhile, as without graphs."""
        self._is_singly = True
        try:
            yield
        finally:
            self._is_singly = False

    def _capture(self, rows: int) -> None:
        """Make a graph; where the driver cannot, that is logged, and no other is made."""
        try:
            with cuda_errors("capturing a graph"):
                replay = capture(self._stream.handle, functools.partial(self._issue, rows))
        except EngineError as error:
            _log.warning("CUDA graph capture failed, kernels are launched one by one reason=%s", error)
            self._captures = False
            return
        self._replays[rows] = self._owner.keep(replay)

    def _finish(self) -> None:
        with cuda_errors("waiting for an inference"):
            self._event.synchronize()

    def _rows_for(self, count: int) -> int:
        return count if self._step is None else -(-count // self._step) * self._step

    def _issue(self, rows: int) -> None:
        source = self.canvas.address if self._copy is None else self._copy.address
        if self._copy is not None:
            self._cuda.memcpy_htod_async(source, self.canvas.array[:rows], self._stream.raw)
        given = self._tensors.input
        target = self._buffers[given.name].address
        self._kernels.normalize(
            self._stream.raw, source, target, rows=rows, preprocess=self._preprocess, dtype=given.dtype
        )
        step = rows if self._step is None else self._step
        for first in range(0, rows, step):
            self._infer(first, step)
        self._result.issue(self._stream.raw, rows)

    def _infer(self, first: int, count: int) -> None:
        execution = self._executions.of(count)
        tensors = (self._tensors.input, self._tensors.output, *self._tensors.others)
        execution.place({one.name: self._buffers[one.name].address + first * one.row_bytes for one in tensors})
        given = self._tensors.input
        execution.set_shape(given.name, (count, *given.row_shape))
        execution.enqueue(self._stream.handle)
