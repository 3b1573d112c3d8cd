"""A float engine of TensorRT that shows its inside: inferred step by step, and something is taken of each tensor.

Tensors come to the host (activations), or the GPU counts or adds what is in them, and they stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import CudaEvent, DeviceBuffer
from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.binding import MessageLog, TensorRtLibrary, import_tensorrt, make_logger
from edge.engine.tensorrt.build.build import serialized
from edge.engine.tensorrt.build.config import make_config
from edge.engine.tensorrt.build.network import infos_of, network_tensors, parsed_network, set_shapes
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader, TensorrtDevice, read_device
from edge.engine.tensorrt.routes import Route
from edge.engine.tensorrt.runner import Execution, TensorRtRunner, load_engine
from edge.engine.tensorrt.slot import canvas_of
from edge.engine.tensorrt.takes import CANVASES, Inside, Take
from edge.engine.tensorrt.tensors import input_of, tensors_of
from edge.errors import EngineError
from edge.reading import available_bytes
from edge.types import ModelSpec, Precision

__all__ = ["InsideRunner", "StepRunner", "build_marked"]

Taken = TypeVar("Taken")

_FAST = 1  # seconds instead of minutes: what is looked into is run on some hundred images only


def build_marked(
    library: TensorRtLibrary,
    device: TensorrtDevice,
    spec: ModelSpec,
    content: bytes,
    tensors: Sequence[str],
    *,
    max_batch: int,
) -> tuple[PlanHeader, bytes]:
    """Return what TensorRT serialized of the ONNX `content`, and a header that lists all that it gives out.

    It computes in float32, without TF32. A Q/DQ model is built, too, where networks are strongly typed: its levels are
    then what the pairs state.

    Args:
        tensors: to give out beside its output; the input is none of them.
        max_batch: most rows at once.

    Raises `EngineError` if TensorRT cannot build it, or has no tensor of such a name.
    """
    log = MessageLog()
    logger = make_logger(library, log)
    options, fp32, free_bytes = Options(optimization_level=_FAST), Precision.FP32, available_bytes()
    builder = library.trt.Builder(logger)
    is_strong = library.abilities.has_strong_typing and (spec.is_quantized or not library.abilities.has_precision_flags)
    route = Route.FLOAT_STRONG if is_strong else Route.FLOAT_WEAK
    network = parsed_network(library, builder, logger, content, name=spec.name, is_strongly_typed=is_strong)
    config = make_config(library, builder, device, options, route=route, precision=fp32, free_bytes=free_bytes)
    set_shapes(builder, config, network, spec, max_batch=max_batch)
    known = {tensor.name: tensor for tensor in network_tensors(network)}
    given_out = {network.get_output(index).name for index in range(network.num_outputs)}
    for name in dict.fromkeys(tensors):
        if name not in known:
            raise EngineError(f'{spec.name}: TensorRT has no tensor "{name}"')
        if name not in given_out:
            network.mark_output(known[name])
    inputs, outputs = infos_of(network)
    header = PlanHeader(
        library=library.name,
        version=library.version,
        compute_capability=device.compute_capability,
        device=device.name,
        precision=fp32.value,
        route=route.value,
        max_batch=max_batch,
        batch=spec.batch,
        inputs=inputs,
        outputs=outputs,
    )
    return header, serialized(builder, network, config, log, spec.name)


class StepRunner(TensorRtRunner):
    """Runs a plan in one stream, without graphs: one row after the other, or as many at once as the model fixes.

    Args:
        plan: what TensorRT serialized.
        max_batch: rows of each canvas.
        canvases: how many there are.

    Raises `EngineError` if there is no driver, TensorRT does not take the plan, or memory runs out.
    """

    def __init__(
        self,
        library: TensorRtLibrary,
        header: PlanHeader,
        plan: bytes,
        spec: ModelSpec,
        *,
        max_batch: int,
        canvases: int,
    ) -> None:
        self._step = header.batch or 1
        self._rows = -(-max_batch // self._step) * self._step
        super().__init__(library, spec, max_batch=max_batch)
        with self._opening():
            self._open(header, plan, canvases)

    def _open(self, header: PlanHeader, plan: bytes, canvases: int) -> None:
        keep, rows = self._owner.keep, self._rows
        self._kernels = keep(Kernels(self._gpu))
        self._order = self._stream()
        self._loaded = load_engine(self._library, plan, name=self._spec.name, dla_core=header.dla_core)
        self._execution = keep(Execution(self._loaded, name=self._spec.name, stream=self._order.handle))
        self._input = input_of(header, self._spec)
        self._execution.set_shape(self._input.name, (self._step, *self._input.row_shape))
        tensors = tensors_of(header, self._spec, self._execution.shape_of, rows=self._step)
        self._outputs = (tensors.output, *tensors.others)
        self._device = {one.name: keep(DeviceBuffer(self._step * one.row_bytes)) for one in self._outputs}
        self._device[self._input.name] = keep(DeviceBuffer(rows * self._input.row_bytes))
        self._canvases = [keep(canvas_of(self._gpu, self._spec.preprocess, rows)) for _ in range(canvases)]
        self._copy = None if self._gpu.is_integrated else keep(DeviceBuffer(self._canvases[0].array.nbytes))

    def _bring(self, index: int, rows: int) -> None:
        """Make the model's input of the first rows of a canvas."""
        stream, canvas = self._order.raw, self._canvases[index]
        if self._copy is not None:
            cuda_driver().memcpy_htod_async(self._copy.address, canvas.array[:rows], stream)
        source = canvas.address if self._copy is None else self._copy.address
        target = self._device[self._input.name].address
        self._kernels.normalize(
            stream, source, target, rows=rows, preprocess=self._spec.preprocess, dtype=self._input.dtype
        )

    def _infer(self, first: int) -> dict[str, int]:
        """Infer one step, from row `first` on of the input; return where its tensors lie on the GPU, by name."""
        addresses = {name: buffer.address for name, buffer in self._device.items()}
        addresses[self._input.name] += first * self._input.row_bytes
        self._execution.place(addresses)
        self._execution.enqueue(self._order.handle)
        return addresses


class InsideRunner(StepRunner, Generic[Taken]):
    """Lets each `Take` see all tensors; one event for each batch. `wait` gives what they have taken.

    Args:
        names: tensors that something is taken of; the output may be among them.
        make_takes: what takes of them.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises `EngineError` if the engine cannot be built or run here, or has no tensor of such a name.
    """

    def __init__(
        self,
        spec: ModelSpec,
        names: Sequence[str],
        make_takes: Callable[[Inside], Sequence[Take[Taken]]],
        *,
        max_batch: int,
        content: bytes | None,
    ) -> None:
        library, device = import_tensorrt(), read_device()
        inner = [name for name in dict.fromkeys(names) if name != spec.input_name]
        model = spec.path.read_bytes() if content is None else content
        # One row at once where the model leaves it open: its values then do not depend on the rows beside it.
        header, plan = build_marked(library, device, spec, model, inner, max_batch=1)
        self._counts = [0] * CANVASES
        self._make_takes = make_takes
        super().__init__(library, header, plan, spec, max_batch=max_batch, canvases=CANVASES)

    def start(self, index: int, count: int) -> None:
        self._require_rows(index, count)
        with self._at_work(), cuda_errors("starting an inference"):
            self._counts[index] = count
            self._issue(index, count)
            self._events[index].record(self._order)

    def wait(self, index: int) -> dict[str, Taken]:
        """Valid until the next `start` of this canvas."""
        with self._at_work(), cuda_errors("waiting for an inference"):
            self._events[index].synchronize()
        taken = (take.read(index, self._counts[index]) for take in self._takes)
        return {name: found for each in taken for name, found in each.items()}

    def _open(self, header: PlanHeader, plan: bytes, canvases: int) -> None:
        super()._open(header, plan, canvases)
        self._events = [self._owner.keep(CudaEvent()) for _ in range(canvases)]
        tensors = (self._input, *self._outputs)
        self._takes = self._make_takes(
            Inside(owner=self._owner, kernels=self._kernels, tensors=tensors, step=self._step, rows=self._rows)
        )

    def _issue(self, index: int, count: int) -> None:
        stream = self._order.raw
        self._bring(index, -(-count // self._step) * self._step)
        for take in self._takes:
            take.begin(stream)
        for first in range(0, count, self._step):
            addresses = self._infer(first)
            used = min(self._step, count - first)  # rows behind them hold what they held before
            for tensor in (self._input, *self._outputs):
                for take in self._takes:
                    take.add(stream, index, tensor, addresses[tensor.name], first=first, count=used)
        for take in self._takes:
            take.finish(stream, index)
