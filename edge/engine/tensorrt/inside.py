"""A float engine of TensorRT that shows its inside: inferred step by step, and something is taken of each tensor."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer
from edge.engine.cuda.stream import CudaEvent
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.marked import build_marked
from edge.engine.tensorrt.device import read_device
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.runner import TensorRtRunner
from edge.engine.tensorrt.runtime import load_engine
from edge.engine.tensorrt.slot import canvas_of
from edge.engine.tensorrt.takes import Take
from edge.engine.tensorrt.tensors import Tensor, input_of, tensors_of
from edge.types import ModelSpec

__all__ = ["CANVASES", "InsideRunner"]

CANVASES = 2


class InsideRunner(TensorRtRunner):
    """Runs two canvases in one stream and lets `_takes` see every tensor; one event for each batch.

    One row is inferred after the other, or as many at once as the model fixes.

    Args:
        library: TensorRT.
        spec: what the model is.
        names: tensors that something is taken of; the output may be among them.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises:
        EngineError: if the engine cannot be built or run here, or has no tensor of such a name.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(
        self, library: TensorRtLibrary, spec: ModelSpec, names: Sequence[str], *, max_batch: int, content: bytes | None
    ) -> None:
        inner = [name for name in dict.fromkeys(names) if name != spec.input_name]
        model = spec.path.read_bytes() if content is None else content
        # One row at once where the model leaves it open: its values then do not depend on the rows beside it.
        header, plan = build_marked(library, read_device(), spec, model, inner, max_batch=1)
        self._step = header.batch or 1
        self._rows = -(-max_batch // self._step) * self._step
        self._counts = [0] * CANVASES
        super().__init__(library, spec, max_batch=max_batch)
        try:
            with self._at_work():
                self._open(header, plan)
        except BaseException:
            self.close()
            raise

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index`."""
        self._require_rows(index, count)
        with self._at_work(), cuda_errors("starting an inference"):
            self._counts[index] = count
            self._issue(index, count)
            self._events[index].record(self._order)

    def _finish(self, index: int) -> int:
        """Wait for the rows last started; return how many they are."""
        with self._at_work(), cuda_errors("waiting for an inference"):
            self._events[index].synchronize()
        return self._counts[index]

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        """Return what takes of `tensors`, the input and all that was named among them."""
        raise NotImplementedError

    def _open(self, header: PlanHeader, plan: bytes) -> None:
        keep, rows = self._owner.keep, self._rows
        self._kernels = keep(Kernels(self._gpu))
        self._order = self._stream()
        loaded = load_engine(self._library, plan, name=self._spec.name, dla_core=None)
        self._execution = keep(Execution(loaded, name=self._spec.name, stream=self._order.handle))
        self._input = input_of(header, self._spec)
        self._execution.set_shape(self._input.name, (self._step, *self._input.row_shape))
        tensors = tensors_of(header, self._spec, self._execution.shape_of)
        self._outputs = (tensors.output, *tensors.others)
        self._device = {one.name: keep(DeviceBuffer(self._step * one.row_bytes)) for one in self._outputs}
        self._device[self._input.name] = keep(DeviceBuffer(rows * self._input.row_bytes))
        self._canvases = [keep(canvas_of(self._gpu, self._spec.preprocess, rows)) for _ in range(CANVASES)]
        self._copy = None if self._gpu.is_integrated else keep(DeviceBuffer(self._canvases[0].array.nbytes))
        self._events = [keep(CudaEvent()) for _ in range(CANVASES)]
        self._takes = self._takes_of(self._kernels, (self._input, *self._outputs))

    def _issue(self, index: int, count: int) -> None:
        stream, rows = self._order.raw, -(-count // self._step) * self._step
        canvas, target = self._canvases[index], self._device[self._input.name].address
        if self._copy is not None:
            import_pycuda().memcpy_htod_async(self._copy.address, canvas.array[:rows], stream)
        source = canvas.address if self._copy is None else self._copy.address
        self._kernels.normalize(
            stream, source, target, rows=rows, preprocess=self._spec.preprocess, dtype=self._input.dtype
        )
        for take in self._takes:
            take.begin(stream)
        for first in range(0, count, self._step):
            self._infer(index, first, min(self._step, count - first))
        for take in self._takes:
            take.finish(stream, index)

    def _infer(self, index: int, first: int, count: int) -> None:
        """Infer one step, of which `count` rows are of use: rows behind them hold what they held before."""
        addresses = {name: buffer.address for name, buffer in self._device.items()}
        addresses[self._input.name] += first * self._input.row_bytes
        self._execution.place(addresses)
        self._execution.enqueue(self._order.handle)
        for tensor in (self._input, *self._outputs):
            for take in self._takes:
                take.add(self._order.raw, index, tensor, addresses[tensor.name], first=first, count=count)
