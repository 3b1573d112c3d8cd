"""TensorRT as something to look into: a float engine whose inner tensors are brought to the host, step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, HostArray, Owner
from edge.engine.cuda.stream import Event, Stream
from edge.engine.tensorrt.binding import Library
from edge.engine.tensorrt.build.marked import build_marked
from edge.engine.tensorrt.device import read_device
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.runtime import load_engine
from edge.engine.tensorrt.slot import canvas_of
from edge.engine.tensorrt.tensors import Tensor, input_of, tensors_of
from edge.errors import EngineError, TensorMismatchError
from edge.types import ModelSpec, Preprocess

__all__ = ["TensorRtActivations"]

_CANVASES = 2


class TensorRtActivations:
    """`edge.protocols.ActivationEngine` on an NVIDIA GPU.

    One row is inferred after the other, or as many at once as the model fixes.

    Args:
        library: TensorRT.
        spec: what the model is.
        names: tensors to give out.
        largest_of: other tensors of which only the largest |x| is given out, float32 (count,); the GPU finds it.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises:
        EngineError: if the engine cannot be built or run here, or has no tensor of such a name.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(
        self,
        library: Library,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        largest_of: Sequence[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._library, self._spec, self._max_batch = library, spec, max_batch
        self._largest_of, self._has_input = tuple(largest_of), spec.input_name in names
        inner = [name for name in dict.fromkeys((*names, *largest_of)) if name != spec.input_name]
        model = spec.path.read_bytes() if content is None else content
        # One row at once where the model leaves it open: its values then do not depend on the rows beside it.
        header, plan = build_marked(library, read_device(), spec, model, inner, max_batch=1)
        self._step = header.batch or 1
        self._rows = -(-max_batch // self._step) * self._step
        self._counts = [0] * _CANVASES
        self._gpu, self._owner = Gpu(), Owner()
        try:
            with self._at_work():
                self._open(header, plan)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """`tensorrt` or `tensorrt_rtx`, and its version."""
        return f"{self._library.name} {self._library.version}"

    @property
    def preprocess(self) -> Preprocess:
        """The preprocess that the kernel computes."""
        return self._spec.preprocess

    @property
    def max_batch(self) -> int:
        """Rows of each canvas."""
        return self._max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two canvases, uint8 (max_batch, H, W, 3) RGB, in pinned memory: gone with `close`."""
        return tuple(canvas.array[: self._max_batch] for canvas in self._canvases)

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index`."""
        if not (0 <= index < _CANVASES and 1 <= count <= self._max_batch):
            raise TensorMismatchError(
                f"canvas {index}, rows {count}: this engine has canvases 0 to {_CANVASES - 1} "
                f"of 1 to {self._max_batch} rows"
            )
        self._counts[index] = count
        with self._at_work(), cuda_errors("starting an inference"):
            self._issue(index, -(-count // self._step) * self._step)
            self._events[index].record(self._stream)

    def wait(self, index: int) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of the rows last started, by name; valid until the next `start` of this canvas."""
        with self._at_work(), cuda_errors("waiting for an inference"):
            self._events[index].synchronize()
        count = self._counts[index]
        return {name: host.array[:count] for name, host in self._whole[index].items()} | {
            name: np.repeat(host.array, self._step)[:count] for name, host in self._peaks[index].items()
        }

    def close(self) -> None:
        """Wait for what runs, and free everything."""
        if self._gpu.is_closed:
            return
        with self._at_work():
            self._owner.close()
        self._gpu.close()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        try:
            with self._gpu.current():
                yield
        except EngineError as error:
            raise EngineError(f"{self._spec.name}: {error.problem}", hint=error.hint) from error

    def _open(self, header: PlanHeader, plan: bytes) -> None:
        keep, rows = self._owner.keep, self._rows
        self._kernels = keep(Kernels(self._gpu))
        self._stream = keep(Stream())
        loaded = load_engine(self._library, plan, name=self._spec.name, dla_core=None)
        self._execution = keep(Execution(loaded, name=self._spec.name, stream=self._stream.handle))
        self._input = input_of(header, self._spec)
        self._execution.set_shape(self._input.name, (self._step, *self._input.row_shape))
        tensors = tensors_of(header, self._spec, self._execution.shape_of)
        self._outputs = (tensors.output, *tensors.others)
        self._device = {one.name: keep(DeviceBuffer(self._step * one.row_bytes)) for one in self._outputs}
        self._device[self._input.name] = keep(DeviceBuffer(rows * self._input.row_bytes))
        self._canvases = [keep(canvas_of(self._gpu, self._spec.preprocess, rows)) for _ in range(_CANVASES)]
        self._copy = None if self._gpu.is_integrated else keep(DeviceBuffer(self._canvases[0].array.nbytes))
        self._peak = keep(DeviceBuffer(4))
        self._events = [keep(Event()) for _ in range(_CANVASES)]
        whole = [one for one in self._outputs if one.name not in self._largest_of or one is tensors.output]
        self._whole = [{one.name: self._host(one) for one in self._given(whole)} for _ in range(_CANVASES)]
        self._peaks = [{name: self._steps_of_host() for name in self._largest_of} for _ in range(_CANVASES)]
        self._owner.callback(self._stream.drain)

    def _given(self, whole: Sequence[Tensor]) -> Sequence[Tensor]:
        return (*whole, self._input) if self._has_input else whole

    def _host(self, tensor: Tensor) -> HostArray:
        return self._owner.keep(HostArray((self._rows, *tensor.row_shape), tensor.dtype, is_mapped=False))

    def _steps_of_host(self) -> HostArray:
        return self._owner.keep(HostArray((self._rows // self._step,), np.float32, is_mapped=False))

    def _issue(self, index: int, rows: int) -> None:
        cuda, stream = import_pycuda(), self._stream.raw
        canvas, target = self._canvases[index], self._device[self._input.name].address
        if self._copy is not None:
            cuda.memcpy_htod_async(self._copy.address, canvas.array[:rows], stream)
        source = canvas.address if self._copy is None else self._copy.address
        self._kernels.normalize(
            stream, source, target, rows=rows, preprocess=self._spec.preprocess, dtype=self._input.dtype
        )
        if self._has_input:
            cuda.memcpy_dtoh_async(self._whole[index][self._input.name].array[:rows], target, stream)
        for first in range(0, rows, self._step):
            self._infer(index, first)

    def _infer(self, index: int, first: int) -> None:
        cuda, stream = import_pycuda(), self._stream.raw
        addresses = {name: buffer.address for name, buffer in self._device.items()}
        self._execution.place(
            addresses | {self._input.name: addresses[self._input.name] + first * self._input.row_bytes}
        )
        self._execution.enqueue(self._stream.handle)
        for one in self._outputs:
            if one.name in self._whole[index]:
                rows = self._whole[index][one.name].array[first : first + self._step]
                cuda.memcpy_dtoh_async(rows, addresses[one.name], stream)
            if one.name in self._peaks[index]:
                self._find_largest(index, one, first // self._step)

    def _find_largest(self, index: int, tensor: Tensor, step: int) -> None:
        cuda, stream = import_pycuda(), self._stream.raw
        count = self._step * tensor.row_bytes // tensor.dtype.itemsize
        cuda.memset_d32_async(self._peak.address, 0, 1, stream)
        self._kernels.largest(stream, self._device[tensor.name].address, rows=1, count=count, found=self._peak.address)
        cuda.memcpy_dtoh_async(self._peaks[index][tensor.name].array[step : step + 1], self._peak.address, stream)
