"""The engine that runs a plan: two canvases, of which one is filled while the other is inferred, and one stream.

All else on the GPU is shared but the outputs, which the host may read late: two batches are never inferred at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from edge.engine.cuda.gpu import DeviceBuffer, Stream
from edge.engine.cuda.kernels import Kernels
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.plan import PlanHeader, split_compiled
from edge.engine.tensorrt.runner import Execution, Executions, TensorRtRunner, load_engine
from edge.engine.tensorrt.slot import COPY, CandidateResult, RawResult, Result, Slot
from edge.engine.tensorrt.tensors import Tensors, input_of, tensors_of
from edge.errors import EngineError
from edge.types import EngineOutput, ModelSpec

__all__ = ["TensorRtEngine"]

_CANVASES = 2  # one is inferred while the other is filled


class TensorRtEngine(TensorRtRunner):
    """`edge.protocols.Engine` on an NVIDIA GPU.

    With `request.score_threshold` the host gets candidates, without it the raw output.

    Args:
        content: what TensorRT serialized.
        request: what the plan was built for.

    Raises `EngineError` if there is no driver, TensorRT does not take the plan, or memory runs out.
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
        self._executions: Executions | None = None
        super().__init__(library, spec, max_batch=request.max_batch)
        with self._opening():
            self._open(content, header)

    def start(self, index: int, count: int) -> None:
        self._require_rows(index, count)
        with self._at_work():
            self._slots[index].start(count)

    def wait(self, index: int) -> EngineOutput:
        """Valid until the next `start` of this canvas."""
        with self._at_work():
            return self._slots[index].wait()

    @contextlib.contextmanager
    def singly(self) -> Iterator[None]:
        """Give work singly meanwhile, where it is else given as a graph; a library's own graphs stay."""
        with contextlib.ExitStack() as both:
            for slot in self._slots:
                both.enter_context(slot.singly())
            yield

    def compiled(self) -> bytes:
        """Return what the library has compiled for each number of rows, all of which are inferred for that."""
        for count in range(1, self.max_batch + 1):
            self.start(0, count)
            self.wait(0)
        with self._at_work():
            assert self._executions is not None
            return self._executions.runtime_cache()

    def _open(self, content: bytes, header: PlanHeader) -> None:
        kernels = self._owner.keep(Kernels(self._gpu))
        plan, compiled = split_compiled(header, content)
        self._loaded = load_engine(self._library, plan, name=self._spec.name, dla_core=header.dla_core)
        self._owner.callback(self._forget)
        stream = self._stream()
        self._executions = executions = Executions(
            self._loaded, self._owner, name=self._spec.name, stream=stream.handle, runtime_cache=compiled
        )
        self._tensors = self._sized(executions.of(self._step or self._rows), header)
        shared = self._shared()
        for _ in range(_CANVASES):
            self._slots.append(self._slot(kernels, executions, stream, shared))
        self._canvases = [slot.canvas for slot in self._slots]
        for slot in self._slots:
            slot.prepare()

    def _sized(self, execution: Execution, header: PlanHeader) -> Tensors:
        source, rows = input_of(header, self._spec), self._step or self._rows
        execution.set_shape(source.name, (rows, *source.row_shape))
        return tensors_of(header, self._spec, execution.shape_of, rows=rows)

    def _forget(self) -> None:
        self._slots.clear()
        self._executions = None
        del self._loaded

    def _shared(self) -> dict[str, DeviceBuffer]:
        """Return what both canvases use in turn: all of the GPU's memory but the output, which the host may read."""
        tensors, size = self._tensors, self._spec.preprocess.size
        row_bytes = {one.name: one.row_bytes for one in (tensors.input, *tensors.others)}
        if not self._gpu.is_integrated:
            row_bytes[COPY] = size.height * size.width * 3
        return {name: self._owner.keep(DeviceBuffer(self._rows * count)) for name, count in row_bytes.items()}

    def _slot(
        self, kernels: Kernels, executions: Executions, stream: Stream, shared: Mapping[str, DeviceBuffer]
    ) -> Slot:
        return Slot(
            self._owner,
            self._gpu,
            kernels,
            preprocess=self._spec.preprocess,
            tensors=self._tensors,
            rows=self._rows,
            step=self._step,
            stream=stream,
            executions=executions,
            shared=shared,
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
