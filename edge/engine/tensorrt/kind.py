"""TensorRT as a kind of engine: built on the machine that runs it, in minutes, and kept as a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.memory import HostArray
from edge.engine.kind import (
    DoctorFinding,
    EngineKind,
    EngineRequest,
    LayerProfiler,
    ModelForms,
    Peak,
    Plan,
)
from edge.engine.measuring import NodeMeter, RoofMeter
from edge.engine.tensorrt.binding import TensorRtLibrary, import_tensorrt
from edge.engine.tensorrt.build.build import build_plan
from edge.engine.tensorrt.calibrators import CALIBRATORS, CalibratorSettings, written_cache
from edge.engine.tensorrt.device import read_device
from edge.engine.tensorrt.examine import examined, require_calibration
from edge.engine.tensorrt.facts import FACTS
from edge.engine.tensorrt.machine import read_machine
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader, require_fit, split_plan
from edge.errors import EngineError
from edge.types import ModelSpec, Precision

if TYPE_CHECKING:
    from edge.protocols import ActivationEngine, AveragingEngine, Engine, ObservingEngine

__all__ = ["KIND"]


class _TensorRt:
    """`edge.engine.kind.EngineKind` on an NVIDIA GPU."""

    @property
    def name(self) -> str:
        """As in a pipeline file."""
        return FACTS.name

    @property
    def options_type(self) -> type[msgspec.Struct]:
        """Its keys in the `engine` section."""
        return Options

    def build(
        self,
        model: ModelForms,
        request: EngineRequest,
        *,
        on_progress: Callable[[str, float], None] = lambda phase, share: None,
    ) -> Plan:
        """Return a plan for this machine's GPU."""
        library, device = import_tensorrt(), read_device()
        return build_plan(library, device, model, request, on_progress=on_progress)

    def load(self, plan: bytes, spec: ModelSpec, request: EngineRequest) -> Engine:
        """Return the engine of a plan that was built by this TensorRT for this GPU."""
        from edge.engine.tensorrt.engine import TensorRtEngine

        library, (header, content) = self._read(plan, spec)
        return TensorRtEngine(library, content, header, spec, request)

    def activations(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> ActivationEngine:
        """Return an engine that gives out tensors of the float network."""
        from edge.engine.tensorrt.activations import TensorRtActivations

        library = import_tensorrt()
        read_device()
        return TensorRtActivations(library, spec, tensors, max_batch=max_batch, content=content)

    def observing(
        self,
        spec: ModelSpec,
        tensors: Sequence[str],
        *,
        largest_of: Collection[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> ObservingEngine:
        """Return an engine that counts what is in tensors of the float network, on the GPU."""
        from edge.engine.tensorrt.observing import TensorRtObserving

        library = import_tensorrt()
        read_device()
        return TensorRtObserving(
            library, spec, tensors, largest_of=tuple(largest_of), max_batch=max_batch, content=content
        )

    def averaging(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> AveragingEngine:
        """Return an engine that takes the means of channels of the float network, on the GPU."""
        from edge.engine.tensorrt.averaging import TensorRtAveraging

        library = import_tensorrt()
        read_device()
        return TensorRtAveraging(library, spec, tensors, max_batch=max_batch, content=content)

    @property
    def calibrators(self) -> tuple[str, ...]:
        """Those of TensorRT 8 to 10."""
        return tuple(CALIBRATORS)

    def calibrator_cache(
        self,
        model: ModelForms,
        calibrator: str,
        batches: Iterator[NDArray[np.uint8]],
        *,
        quantile: float | None = None,
        cutoff: float | None = None,
        on_progress: Callable[[str, float], None] = lambda phase, share: None,
    ) -> bytes:
        """Return the cache that one of TensorRT's calibrators writes, on this machine's GPU."""
        settings = CalibratorSettings(name=calibrator, quantile=quantile, cutoff=cutoff)
        library, device = import_tensorrt(), read_device()
        require_calibration(read_machine(), library)
        on_progress("calibration", 0.0)
        gpu = Gpu()
        try:
            with gpu.current():
                cache = written_cache(library, device, model, settings, batches, _host_memory)
        finally:
            gpu.close()
        on_progress("calibration", 1.0)
        return cache

    def profiler(self, spec: ModelSpec, layers: Collection[str], *, content: bytes | None = None) -> LayerProfiler:
        """Return what times `layers` on the GPU, in an engine that is built for it: float32, or INT8."""
        from edge.engine.tensorrt import layer_times
        from edge.engine.tensorrt.given import GivenModel
        from edge.engine.tensorrt.profiling import ProfiledPlan

        library, device = import_tensorrt(), read_device()
        rows = spec.batch or 1
        model = GivenModel(spec, spec.path.read_bytes() if content is None else content)
        precision = Precision.INT8 if spec.is_quantized else Precision.FP32
        request = EngineRequest(precision=precision, max_batch=rows, options=Options())
        header, serialized = split_plan(build_plan(library, device, model, request).data)
        plan = ProfiledPlan(library, header, serialized, spec, layers, rows=rows)
        return layer_times.LayerProfiler(plan, layers)

    @property
    def cores(self) -> int:
        """1: a GPU is measured as a whole."""
        return 1

    @property
    def is_processor(self) -> bool:
        """It is not: decoding and reading are the processor's, or the decoder's."""
        return False

    @property
    def precisions(self) -> tuple[Precision, Precision]:
        """GPUs compute in FP16 what INT8 leaves."""
        return Precision.FP16, Precision.INT8

    def roof_meter(self, *, cores: int) -> RoofMeter:
        """Return what measures products from registers, and working sets; `cores` is 1."""
        from edge.engine.cuda.roofs import GpuRoofMeter

        library = import_tensorrt()
        return GpuRoofMeter(engine=f"{library.name} {library.version}")

    def node_meter(
        self, spec: ModelSpec, names: Collection[str], *, content: bytes, rows: int, cores: int
    ) -> NodeMeter:
        """Return what times the layers of a plan; `cores` is 1."""
        from edge.engine.tensorrt.layer_times import GpuNodeMeter

        library, (header, serialized) = self._read(content, spec)
        return GpuNodeMeter(library, header, serialized, spec, names, rows=rows)

    def peaks(self) -> Iterator[Peak]:
        """Yield what the GPU reaches; neither TensorRT nor a model is needed."""
        from edge.engine.cuda.peaks import gpu_peaks

        yield from gpu_peaks(read_machine().board)

    def examine(self) -> Iterator[DoctorFinding]:
        """Yield what is installed, the routes that it has and which is taken, and known-bad combinations."""
        yield from examined(read_machine())

    def _read(self, plan: bytes, spec: ModelSpec) -> tuple[TensorRtLibrary, tuple[PlanHeader, bytes]]:
        """Return the library, and header and content of a plan that it made for this GPU."""
        library, device = import_tensorrt(), read_device()
        try:
            header, content = split_plan(plan)
            require_fit(header, library, device)
        except EngineError as error:
            raise EngineError(f"{spec.name}: {error.problem}", hint=error.hint) from error
        return library, (header, content)


def _host_memory(shape: tuple[int, ...]) -> HostArray:
    return HostArray(shape, np.float32, is_mapped=True)


KIND: EngineKind = _TensorRt()
