"""A plan that is run for its times: of each step by the GPU's clock, of each layer by TensorRT's profile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, HostArray
from edge.engine.cuda.stream import CudaEvent
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.origins import Origins
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.runner import TensorRtRunner
from edge.engine.tensorrt.runtime import load_engine
from edge.engine.tensorrt.slot import canvas_of
from edge.engine.tensorrt.tensors import input_of, tensors_of
from edge.errors import EngineError
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ICudaEngine, IProfiler

__all__ = ["ENGINE_STEP", "ProfiledPlan"]

ENGINE_STEP = "engine"


class ProfiledPlan(TensorRtRunner):
    """Runs a plan with one batch at a time, without graphs.

    Args:
        library: TensorRT.
        header: of the plan.
        content: what TensorRT serialized.
        spec: what the model is.
        names: of nodes of the ONNX file; it is told which of them went into a layer.
        rows: of each batch, as many as the model fixes where it does.

    Raises:
        EngineError: if there is no driver, TensorRT does not take the plan, or memory runs out.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(
        self,
        library: TensorRtLibrary,
        header: PlanHeader,
        content: bytes,
        spec: ModelSpec,
        names: Collection[str],
        *,
        rows: int,
    ) -> None:
        self._taken_s: dict[str, float] = {}
        self._profiler: IProfiler | None = None
        super().__init__(library, spec, max_batch=rows)
        try:
            with self._at_work():
                self._open(header, content, names)
        except BaseException:
            self.close()
            raise

    @property
    def origins(self) -> Origins:
        """Which nodes went into the layers."""
        return self._origins

    def fill(self, images: NDArray[np.uint8]) -> None:
        """Say what is inferred from now on: uint8 (rows, H, W, 3) RGB."""
        self._canvas.array[:] = images

    def step_seconds(self) -> dict[str, float]:
        """Infer once, and return what each step took on the GPU; `ENGINE_STEP` is TensorRT's.

        Raises:
            EngineError: if the inference failed.
        """
        with self._at_work(), cuda_errors("timing an inference"):
            steps = dict(self._steps())
            for event, step in zip(self._events, steps.values(), strict=False):
                event.record(self._order)
                step()
            last = self._events[len(steps)]
            last.record(self._order)
            last.synchronize()
            pairs = zip(self._events, self._events[1:], strict=False)
            return {name: one.seconds_until(other) for name, (one, other) in zip(steps, pairs, strict=False)}

    def layer_seconds(self) -> dict[str, float]:
        """Infer once with TensorRT's profiler, and return what it reports by layer, of equal names the sum.

        Raises:
            EngineError: if the inference failed, or TensorRT reports nothing of it.
        """
        with self._at_work(), cuda_errors("profiling an inference"):
            if self._profiler is None:
                self._profiler = _make_profiler(self._library, self._taken_s)
                self._execution.report_to(self._profiler)
            self._taken_s.clear()
            for _, step in self._steps():
                step()
            self._order.synchronize()
            self._execution.report()
            if not self._taken_s:
                raise EngineError("TensorRT's profiler reported no layer")
            return dict(self._taken_s)

    def _open(self, header: PlanHeader, content: bytes, names: Collection[str]) -> None:
        keep, rows, spec = self._owner.keep, self._max_batch, self._spec
        self._kernels, self._order = keep(Kernels(self._gpu)), self._stream()
        loaded = load_engine(self._library, content, name=spec.name, dla_core=header.dla_core)
        self._origins = Origins(_inspected(self._library, loaded.engine), names)
        self._execution = keep(Execution(loaded, name=spec.name, stream=self._order.handle))
        self._input = input_of(header, spec)
        self._execution.set_shape(self._input.name, (rows, *self._input.row_shape))
        tensors = tensors_of(header, spec, self._execution.shape_of)
        self._output = tensors.output
        every = (self._input, tensors.output, *tensors.others)
        self._device = {one.name: keep(DeviceBuffer(rows * one.row_bytes)) for one in every}
        self._execution.place({name: buffer.address for name, buffer in self._device.items()})
        self._canvas = keep(canvas_of(self._gpu, spec.preprocess, rows))
        self._canvases = [self._canvas]
        self._copy = None if self._gpu.is_integrated else keep(DeviceBuffer(self._canvas.array.nbytes))
        self._host = keep(HostArray((rows, *self._output.row_shape), self._output.dtype, is_mapped=False))
        self._events = [keep(CudaEvent(is_timed=True)) for _ in range(1 + len(list(self._steps())))]

    def _steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield what gives each step to the stream, from a batch to its output."""
        if self._copy is not None:
            yield "copy to the GPU", self._bring
        yield "preprocess", self._normalize
        yield ENGINE_STEP, lambda: self._execution.enqueue(self._order.handle)
        yield "copy to the host", self._fetch

    def _bring(self) -> None:
        assert self._copy is not None
        import_pycuda().memcpy_htod_async(self._copy.address, self._canvas.array, self._order.raw)

    def _normalize(self) -> None:
        self._kernels.normalize(
            self._order.raw,
            self._canvas.address if self._copy is None else self._copy.address,
            self._device[self._input.name].address,
            rows=self._max_batch,
            preprocess=self._spec.preprocess,
            dtype=self._input.dtype,
        )

    def _fetch(self) -> None:
        import_pycuda().memcpy_dtoh_async(self._host.array, self._device[self._output.name].address, self._order.raw)


def _inspected(library: TensorRtLibrary, engine: ICudaEngine) -> str:
    inspector = engine.create_engine_inspector()
    return str(inspector.get_engine_information(library.trt.LayerInformationFormat.JSON))


def _make_profiler(library: TensorRtLibrary, taken_s: dict[str, float]) -> Any:
    """Return what TensorRT tells its layers' times, which adds them to `taken_s`."""
    base: Any = library.trt.IProfiler

    class _Profiler(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            taken_s[layer_name] = taken_s.get(layer_name, 0.0) + 1e-3 * ms

    return _Profiler()
