"""A float engine of TensorRT that shows its inside: inferred step by step, and something is taken of each tensor.

Tensors come to the host (activations), or the GPU counts or adds what is in them, and they stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer
from edge.engine.cuda.stream import CudaEvent
from edge.engine.tensorrt.binding import TensorRtLibrary, make_logger
from edge.engine.tensorrt.build.build import serialized
from edge.engine.tensorrt.build.config import make_config
from edge.engine.tensorrt.build.network import infos_of, network_tensors, parsed_network, set_shapes
from edge.engine.tensorrt.device import TensorrtDevice, read_device
from edge.engine.tensorrt.execution import Execution
from edge.engine.tensorrt.log import MessageLog
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.routes import Route
from edge.engine.tensorrt.runner import TensorRtRunner, load_engine
from edge.engine.tensorrt.slot import canvas_of
from edge.engine.tensorrt.takes import Counts, Largest, Means, Take, Whole
from edge.engine.tensorrt.tensors import Tensor, input_of, tensors_of
from edge.errors import EngineError
from edge.reading import available_bytes
from edge.types import ModelSpec, Observed, Precision

__all__ = ["TensorRtActivations", "TensorRtAveraging", "TensorRtObserving", "build_marked"]

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

    Raises:
        EngineError: if TensorRT cannot build it, or has no tensor of such a name.
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


CANVASES = 2


class InsideRunner(TensorRtRunner):
    """Runs two canvases in one stream and lets `_takes` see every tensor; one event for each batch.

    One row is inferred after the other, or as many at once as the model fixes.

    Args:
        names: tensors that something is taken of; the output may be among them.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises:
        EngineError: if the engine cannot be built or run here, or has no tensor of such a name.
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
        tensors = tensors_of(header, self._spec, self._execution.shape_of, rows=self._step)
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
            cuda_driver().memcpy_htod_async(self._copy.address, canvas.array[:rows], stream)
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


class TensorRtActivations(InsideRunner):
    """`edge.protocols.ActivationEngine` on an NVIDIA GPU; arguments and errors are those of `InsideRunner`."""

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._given = {*names, spec.output_name}
        super().__init__(library, spec, names, max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, NDArray[np.float32]]:
        """Valid until the next `start` of this canvas."""
        count = self._finish(index)
        return self._whole.read(index, count)

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        given = [one for one in tensors if one.name in self._given]
        self._whole = Whole(self._owner, given, rows=self._rows, canvases=CANVASES)
        return (self._whole,)


class TensorRtAveraging(InsideRunner):
    """`edge.protocols.AveragingEngine` on an NVIDIA GPU; arguments and errors are those of `InsideRunner`."""

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._averaged = frozenset(names)
        super().__init__(library, spec, names, max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, NDArray[np.float64]]:
        """Valid until the next `start` of this canvas."""
        count = self._finish(index)
        return self._means.read(index, count)

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        averaged = [one for one in tensors if one.name in self._averaged]
        self._means = Means(self._owner, kernels, averaged, rows=self._rows, canvases=CANVASES)
        return (self._means,)


class TensorRtObserving(InsideRunner):
    """`edge.protocols.ObservingEngine` on an NVIDIA GPU: it gives counts, never values.

    Args:
        names: tensors to count.
        largest_of: other tensors, of which the largest |x| is given.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises:
        EngineError: if the engine cannot be built or run here, or has no tensor of such a name.
    """

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        largest_of: Sequence[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._counted, self._largest_of = tuple(names), tuple(largest_of)
        self._of_counts: Counts | None = None
        self._of_peaks: Largest | None = None
        super().__init__(library, spec, (*names, *largest_of), max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, Observed]:
        count, found = self._finish(index), dict[str, Observed]()
        if self._of_counts is not None:
            found.update(self._of_counts.read(index))
        if self._of_peaks is not None:
            found.update(self._of_peaks.read(index, count))
        return found

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        if self._counted:
            self._of_counts = Counts(self._owner, kernels, self._counted, canvases=CANVASES)
        if self._largest_of:
            self._of_peaks = Largest(
                self._owner, kernels, self._largest_of, step=self._step, rows=self._rows, canvases=CANVASES
            )
        return [take for take in (self._of_counts, self._of_peaks) if take is not None]
