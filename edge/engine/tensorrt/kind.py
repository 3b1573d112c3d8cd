"""TensorRT as a kind of engine: built on the machine that runs it, in minutes, and kept as a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.gpu import Gpu, HostArray
from edge.engine.kind import (
    DoctorFinding,
    EngineKind,
    EngineRequest,
    Int8Form,
    LayerProfiler,
    ModelForms,
    Peak,
    Plan,
    ProofForm,
)
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.build.build import build_plan, int8_forms
from edge.engine.tensorrt.calibrators import CALIBRATORS, written_cache
from edge.engine.tensorrt.examine import examined, require_calibration
from edge.engine.tensorrt.facts import FACTS
from edge.engine.tensorrt.machine import read_machine
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import read_device, require_fit, split_plan, with_compiled
from edge.engine.tensorrt.routes import routes_of
from edge.errors import EngineError
from edge.roofline.proof import Row
from edge.types import ModelSpec, Observed, Precision

if TYPE_CHECKING:
    from edge.engine.tensorrt.engine import TensorRtEngine
    from edge.protocols import ActivationEngine, AveragingEngine, ObservingEngine

__all__ = ["KIND"]

_DLA_NODE = Path("/dev/nvhost-ctrl-nvdla0")


class _TensorRt:
    """`edge.engine.kind.EngineKind` on an NVIDIA GPU."""

    name = FACTS.name
    options_type: type[msgspec.Struct] = Options
    calibrators = tuple(CALIBRATORS)  # those of TensorRT 8 to 10

    def build(
        self,
        model: ModelForms,
        request: EngineRequest,
        *,
        on_progress: Callable[[str, float], None] = lambda phase, share: None,
    ) -> Plan:
        library, device = import_tensorrt(), read_device()
        plan = build_plan(library, device, model, request, on_progress=on_progress)
        if not library.abilities.has_own_graphs:
            return plan
        with closing(self.load(plan.data, model.spec, request)) as engine:
            return replace(plan, data=with_compiled(plan.data, engine.compiled()))

    def int8_forms(self, model: ModelForms, request: EngineRequest) -> tuple[Int8Form, ...]:
        """Return the forms that the installed TensorRT has; which is the fastest here is not known (docs/adr/0007)."""
        return int8_forms(import_tensorrt().abilities, model, request)

    def load(self, plan: bytes, spec: ModelSpec, request: EngineRequest) -> TensorRtEngine:
        from edge.engine.tensorrt.engine import TensorRtEngine

        library, device = import_tensorrt(), read_device()
        try:
            header, content = split_plan(plan)
            require_fit(header, library, device)
        except EngineError as error:
            raise EngineError(f"{spec.name}: {error.problem}", hint=error.hint) from error
        return TensorRtEngine(library, content, header, spec, request)

    def activations(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> ActivationEngine:
        from edge.engine.tensorrt.inside import InsideRunner
        from edge.engine.tensorrt.takes import Whole

        given = {*tensors, spec.output_name}
        return InsideRunner(spec, tensors, lambda inside: [Whole(inside, given)], max_batch=max_batch, content=content)

    def observing(
        self,
        spec: ModelSpec,
        tensors: Sequence[str],
        *,
        largest_of: Collection[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> ObservingEngine:
        """Return an engine that gives counts, never values."""
        from edge.engine.tensorrt.inside import InsideRunner
        from edge.engine.tensorrt.takes import Counts, Inside, Largest, Take

        def takes(inside: Inside) -> list[Take[Observed]]:
            wanted = ((Counts, tensors), (Largest, tuple(largest_of)))
            return [take(inside, names) for take, names in wanted if names]

        return InsideRunner(spec, (*tensors, *largest_of), takes, max_batch=max_batch, content=content)

    def averaging(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> AveragingEngine:
        from edge.engine.tensorrt.inside import InsideRunner
        from edge.engine.tensorrt.takes import Means

        return InsideRunner(
            spec, tensors, lambda inside: [Means(inside, tensors)], max_batch=max_batch, content=content
        )

    def calibrator_cache(
        self,
        model: ModelForms,
        calibrator: str,
        batches: Iterator[NDArray[np.uint8]],
    ) -> bytes:
        library, device = import_tensorrt(), read_device()
        require_calibration(read_machine(), library)
        memory = partial(HostArray, dtype=np.float32, is_mapped=True)
        with closing(Gpu()) as gpu, gpu.current():
            return written_cache(library, device, model, calibrator, batches, memory)

    def profiler(self, spec: ModelSpec, layers: Collection[str], *, content: bytes | None = None) -> LayerProfiler:
        """Return what times `layers` on the GPU, in an engine that is built for it: float32, or INT8."""
        from edge.engine.tensorrt.profiling import GivenModel, TimedLayers

        library, device = import_tensorrt(), read_device()
        model = GivenModel(spec, spec.path.read_bytes() if content is None else content)
        precision = Precision.INT8 if spec.is_quantized else Precision.FP32
        request = EngineRequest(precision=precision, max_batch=spec.batch or 1, options=Options())
        header, serialized = split_plan(build_plan(library, device, model, request).data)
        return TimedLayers(library, header, serialized, spec, layers)

    def peaks(self) -> Iterator[Peak]:
        """Yield what the GPU reaches; neither TensorRT nor a model is needed."""
        from edge.engine.cuda.peaks import gpu_peaks

        yield from gpu_peaks(read_machine().board)

    def examine(self) -> Iterator[DoctorFinding]:
        yield from examined(read_machine())

    def proofs(self, *, is_brief: bool) -> Iterator[Row]:
        """Yield what CUDA does; neither TensorRT nor a model is needed."""
        from edge.engine.cuda.proofs import cuda_proofs

        yield from cuda_proofs(is_brief=is_brief)

    def forms(self) -> Iterator[ProofForm]:
        """Yield FP16 and each way to INT8, and with DLA cores the way that they take."""
        library = import_tensorrt()
        yield ProofForm(name="fp16", precision=Precision.FP16, options=Options())
        for route in routes_of(library.abilities):
            options = msgspec.convert({"route": route.value}, Options)
            yield ProofForm(name=f"int8 {route.value}", precision=Precision.INT8, options=options)
        if _DLA_NODE.exists():
            yield ProofForm(name="dla", precision=Precision.INT8, options=Options(dla_core=0), is_beside=True)


KIND: EngineKind = _TensorRt()
