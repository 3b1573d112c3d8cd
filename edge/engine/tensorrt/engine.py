"""The engine that runs a plan: two canvases, each with a stream of its own, one event for each batch."""

from __future__ import annotations

import logging

from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer
from edge.engine.cuda.stream import Stream
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.results import CandidateResult, RawResult, Result
from edge.engine.tensorrt.runner import TensorRtRunner
from edge.engine.tensorrt.runtime import load_engine
from edge.engine.tensorrt.slot import Slot
from edge.engine.tensorrt.tensors import Tensors, input_of, tensors_of
from edge.errors import EngineError
from edge.types import EngineOutput, ModelSpec

__all__ = ["TensorRtEngine"]

_log = logging.getLogger(__name__)
_CANVASES = 2  # one is inferred while the other is filled


class TensorRtEngine(TensorRtRunner):
    """`edge.protocols.Engine` on an NVIDIA GPU.

    With `request.score_threshold` the host gets candidates, without it the raw output.

    Args:
        library: TensorRT.
        content: what TensorRT serialized.
        header: of the plan.
        spec: what the model is.
        request: what the plan was built for.

    Raises:
        EngineError: if there is no driver, TensorRT does not take the plan, or memory runs out.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(
        self, library: TensorRtLibrary, content: bytes, header: PlanHeader, spec: ModelSpec, request: EngineRequest
    ) -> None:
        self._request = request
        if request.max_batch > header.max_batch:
            raise EngineError(
                f"{spec.name}: the plan is for {header.max_batch} frames at once, {request.max_batch} are wanted",
                hint="build it again",
            )
        self._step = header.batch
        self._rows = request.max_batch if header.batch is None else -(-request.max_batch // header.batch) * header.batch
        self._slots: list[Slot] = []
        super().__init__(library, spec, max_batch=request.max_batch)
        try:
            with self._at_work():
                self._open(content, header)
        except BaseException:
            self.close()
            raise

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index`."""
        self._require_rows(index, count)
        with self._at_work():
            self._slots[index].start(count)

    def wait(self, index: int) -> EngineOutput:
        """Return what came of the rows last started; valid until the next `start` of this canvas."""
        with self._at_work():
            return self._slots[index].wait()

    def _open(self, content: bytes, header: PlanHeader) -> None:
        kernels = self._owner.keep(Kernels(self._gpu))
        self._loaded = load_engine(self._library, content, name=self._spec.name, dla_core=header.dla_core)
        self._owner.callback(self._forget)
        places = [self._place() for _ in range(_CANVASES)]
        is_shared = not all(execution.has_profile for execution, _ in places)
        if is_shared:
            _log.warning(
                "the canvases take turns, without CUDA graphs model=%s reason=%s",
                self._spec.name,
                f"TensorRT {self._library.version} lets one context alone use a profile",
            )
            places = places[:1] * _CANVASES
        self._tensors = self._sized(places[0][0], header)
        for execution, stream in places:
            self._slots.append(self._slot(kernels, execution, stream, is_shared=is_shared))
        self._canvases = [slot.canvas for slot in self._slots]
        if not is_shared:
            step = self._step or self._rows
            for slot in self._slots:
                slot.capture(range(step, self._rows + 1, step))

    def _sized(self, execution: Execution, header: PlanHeader) -> Tensors:
        source = input_of(header, self._spec)
        execution.set_shape(source.name, (self._step or self._rows, *source.row_shape))
        return tensors_of(header, self._spec, execution.shape_of)

    def _forget(self) -> None:
        del self._loaded

    def _place(self) -> tuple[Execution, Stream]:
        stream = self._stream()
        return self._execution(stream), stream

    def _execution(self, stream: Stream) -> Execution:
        return self._owner.keep(Execution(self._loaded, name=self._spec.name, stream=stream.handle))

    def _slot(self, kernels: Kernels, execution: Execution, stream: Stream, *, is_shared: bool) -> Slot:
        return Slot(
            self._owner,
            self._gpu,
            kernels,
            preprocess=self._spec.preprocess,
            tensors=self._tensors,
            rows=self._rows,
            step=self._step,
            stream=stream,
            execution=execution,
            make_execution=None if is_shared else lambda: self._execution(stream),
            make_result=lambda source: self._result(kernels, source),
        )

    def _result(self, kernels: Kernels, source: DeviceBuffer) -> Result:
        output, cells, threshold = self._tensors.output, self._tensors.cells, self._request.score_threshold
        if threshold is None or cells is None:
            return RawResult(self._owner, output, source, rows=self._rows)
        return CandidateResult(
            self._owner,
            kernels,
            output,
            cells,
            source,
            rows=self._rows,
            score_threshold=threshold,
            name=self._spec.name,
        )
