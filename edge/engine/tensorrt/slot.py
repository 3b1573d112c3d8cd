"""One canvas and everything behind it: its copy on the GPU, the model's input and output, what the host gets."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

import numpy as np

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.graph import CudaGraph, capture
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, HostArray, Owner
from edge.engine.cuda.stream import CudaEvent, Stream
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.results import Result
from edge.engine.tensorrt.tensors import Tensors
from edge.errors import EngineError
from edge.types import EngineOutput, Preprocess

__all__ = ["Slot", "canvas_of"]

_log = logging.getLogger(__name__)


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
        gpu, kernels: what computes.
        preprocess: of the model.
        tensors: of the engine.
        rows: of the canvas, whole steps of them.
        step: rows of one inference, where the model fixes them; None: it takes as many as come.
        stream: in which it runs; another slot may use it, too.
        execution: of full batches. A graph is made of it, so that its shape stays.
        make_execution: returns another one, for batches of other sizes; None: there is no other.
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
        execution: Execution,
        make_execution: Callable[[], Execution] | None,
        make_result: Callable[[DeviceBuffer], Result],
    ) -> None:
        self._cuda, self._kernels, self._owner = import_pycuda(), kernels, owner
        self._preprocess, self._tensors = preprocess, tensors
        self._rows, self._step = rows, step
        self._stream, self._execution, self._make_execution = stream, execution, make_execution
        self._other: Execution | None = None
        self._event = owner.keep(CudaEvent())
        self.canvas = owner.keep(canvas_of(gpu, preprocess, rows))
        self._copy = None if gpu.is_integrated else owner.keep(DeviceBuffer(self.canvas.array.nbytes))
        self._buffers = {
            tensor.name: owner.keep(DeviceBuffer(rows * tensor.row_bytes))
            for tensor in (tensors.input, tensors.output, *tensors.others)
        }
        self._result = make_result(self._buffers[tensors.output.name])
        self._replays: dict[int, CudaGraph] = {}
        self._count = 0

    def start(self, count: int) -> None:
        """Give the first `count` rows to the stream, as a graph where there is one for as many.

        Raises:
            EngineError: if CUDA or TensorRT refuses.
        """
        self._count = count
        rows = self._rows_for(count)
        with cuda_errors("starting an inference"):
            if rows in self._replays:
                self._replays[rows].launch(self._stream.handle)
            else:
                self._issue(rows)
            self._event.record(self._stream)

    def wait(self) -> EngineOutput:
        """Return what came of the rows last started.

        Raises:
            EngineError: if the inference failed.
        """
        self._finish()
        return self._result.read(self._count)

    def capture(self, counts: Sequence[int]) -> None:
        """Make graphs for as many rows as `counts`; where the driver cannot, that is logged, and work is given singly.

        Each is first run as it is: TensorRT does late, in the first inference, what may not be captured.

        Raises:
            EngineError: if an inference fails.
        """
        for rows in sorted({self._rows_for(count) for count in counts}):
            self.start(rows)
            self._finish()
            try:
                with cuda_errors("capturing a graph"):
                    replay = capture(self._stream.handle, functools.partial(self._issue, rows))
            except EngineError as error:
                _log.warning("no CUDA graph, every inference is issued singly reason=%s", error)
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
        execution = self._execution_for(count)
        tensors = (self._tensors.input, self._tensors.output, *self._tensors.others)
        execution.place({one.name: self._buffers[one.name].address + first * one.row_bytes for one in tensors})
        given = self._tensors.input
        execution.set_shape(given.name, (count, *given.row_shape))
        execution.enqueue(self._stream.handle)

    def _execution_for(self, count: int) -> Execution:
        if self._step is not None or count == self._rows or self._make_execution is None:
            return self._execution
        if self._other is None:
            self._other = self._make_execution()
        return self._other
