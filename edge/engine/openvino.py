"""The CPU engine: OpenVINO, on x86-64 and aarch64. The only module that imports openvino.

A CPU gains nothing from a batch dimension (docs/adr/0002): the rows of a canvas run as independent requests side by
side, unless `rows_per_request` asks for more. Input and output tensors are slices of arrays made once, so that nothing
is copied or allocated per frame.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import EngineError, MissingDependencyError, TensorMismatchError
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import with_uint8_activations
from edge.model.rebatch import largest_difference, rebatch
from edge.types import ColourOrder, ModelSpec, Precision, Preprocess

__all__ = ["OpenVinoEngine", "OpenVinoOptions"]

_log = logging.getLogger(__name__)
_CANVASES = 2  # one is inferred while the other is filled
_TYPE_OF_PRECISION = {Precision.FP32: "f32", Precision.FP16: "f16"}
_REBATCH_TOLERANCE = 1e-4  # of the largest output: other kernels may sum in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoOptions:
    """How to run; `threads` None = all cores; `rows_per_request` > 1 puts a real batch dimension into the graph."""

    max_batch: int
    precision: Precision = Precision.FP32
    threads: int | None = None
    rows_per_request: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rows_per_request <= self.max_batch:
            raise ValueError(f"rows_per_request is 1 to max_batch={self.max_batch}, got {self.rows_per_request}")


class OpenVinoEngine:
    """`edge.protocols.Engine` on the CPU.

    Raises:
        EngineError: if OpenVINO cannot read, compile or run the model, or this CPU lacks the precision.
        MissingDependencyError: if openvino is not installed.
    """

    def __init__(self, spec: ModelSpec, options: OpenVinoOptions) -> None:
        self._ov = _import_openvino()
        self._spec = spec
        self._core = self._ov.Core()
        self._config = self._compile_config(options)
        self._max_batch = options.max_batch
        self._batched = self._rebatched() if spec.batch == 1 and options.rows_per_request > 1 else None
        sizes = self._request_sizes(options)
        self._buffers = self._make_buffers(sizes)
        if len(sizes) > 1 and not self._rows_agree(sizes[0]):
            self._buffers = self._make_buffers([1])

    @property
    def name(self) -> str:
        """`openvino` and its version."""
        return f"openvino {self._ov.__version__.split('-')[0]}"

    @property
    def preprocess(self) -> Preprocess:
        """The preprocess in the graph."""
        return self._spec.preprocess

    @property
    def max_batch(self) -> int:
        """Rows of each canvas that may be used."""
        return self._max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two canvases, uint8 (max_batch, H, W, 3) RGB."""
        return tuple(buffer.canvas[: self._max_batch] for buffer in self._buffers)

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index`."""
        if not (0 <= index < len(self._buffers) and 1 <= count <= self._max_batch):
            raise TensorMismatchError(
                f"canvas {index}, rows {count}: this engine has canvases 0 to {len(self._buffers) - 1} "
                f"of 1 to {self._max_batch} rows"
            )
        self._buffers[index].start(count)

    def wait(self, index: int) -> NDArray[np.float32]:
        """Return the raw output of the rows last started; valid until the next `start` of this canvas."""
        try:
            return self._buffers[index].wait()
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: inference failed: {error}") from error

    def close(self) -> None:
        """Free the requests and the compiled models; what is still being inferred is waited for and forgotten."""
        for buffer in self._buffers:
            buffer.end()
        self._buffers = ()

    def _compile_config(self, options: OpenVinoOptions) -> dict[str, str]:
        threads = options.threads or _available_cores()
        config = {
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": str(min(threads, -(-options.max_batch // options.rows_per_request))),
            "INFERENCE_PRECISION_HINT": _TYPE_OF_PRECISION.get(options.precision, "f32"),
        }
        if options.precision is Precision.FP16 and "FP16" not in self._capabilities():
            raise EngineError(
                f"precision fp16: this CPU computes {', '.join(self._capabilities())}", hint="use fp32 or int8"
            )
        return config

    def _capabilities(self) -> list[str]:
        return sorted(self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))

    def _compile(self, rows: int) -> Any:
        try:
            return self._core.compile_model(self._with_preprocess(self._read(rows)), "CPU", self._config)
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: OpenVINO cannot compile it: {_first_line(error)}") from error

    def _read(self, rows: int) -> Any:
        spec = self._spec
        is_original = spec.batch in (None, rows)
        batched = None if is_original else self._batched
        model = self._core.read_model(self._with_uint8(batched) if spec.is_quantized else batched or str(spec.path))
        size = spec.preprocess.size
        model.reshape({spec.input_name: [rows, 3, size.height, size.width]})
        return model

    def _with_uint8(self, batched: bytes | None) -> bytes:
        """OpenVINO computes wrong results behind a Concat of int8 activations; of the same as uint8, right ones."""
        path = self._spec.path
        return with_uint8_activations(load_graph(path) if batched is None else graph_from_bytes(batched, str(path)))

    def _with_preprocess(self, model: Any) -> Any:
        ov, preprocess = self._ov, self._spec.preprocess
        prepost = ov.preprocess.PrePostProcessor(model)
        tensor = prepost.input(self._spec.input_name)
        tensor.tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
        tensor.model().set_layout(ov.Layout("NCHW"))
        steps = tensor.preprocess().convert_element_type(ov.Type.f32)
        if preprocess.colour_order is ColourOrder.BGR:
            steps.reverse_channels()
        if any(preprocess.mean):
            steps.mean([mean / preprocess.scale for mean in preprocess.mean])
        if (preprocess.scale, *preprocess.std) != (1.0, 1.0, 1.0, 1.0):
            steps.scale([std / preprocess.scale for std in preprocess.std])
        prepost.output(self._spec.output_name).tensor().set_element_type(ov.Type.f32)
        return prepost.build()

    def _make_buffers(self, sizes: list[int]) -> tuple[_Buffer, ...]:
        rows = -(-self._max_batch // sizes[-1]) * sizes[-1]
        compiled = {size: self._compile(size) for size in sizes}
        return tuple(_Buffer(self._ov, compiled, self._spec, rows=rows) for _ in range(_CANVASES))

    def _request_sizes(self, options: OpenVinoOptions) -> list[int]:
        # Largest first; the last one also takes what is left over. A model that is fixed at B > 1 leaves no choice.
        if self._spec.batch is not None and self._spec.batch > 1:
            return [self._spec.batch]
        is_batched = self._spec.batch is None or self._batched is not None
        return sorted({options.rows_per_request if is_batched else 1, 1}, reverse=True)

    def _rebatched(self) -> bytes | None:
        result = rebatch(self._spec.path, self._spec)
        if result.model is None:
            _log.warning("rows run one by one model=%s reason=%s", self._spec.name, result.reason)
        return result.model

    def _rows_agree(self, rows: int) -> bool:
        """Prove on random pixels that a batch gives what each of its rows gives alone, and say so where it does not."""
        buffer = self._buffers[0]
        images = np.random.default_rng(0).integers(0, 256, (rows, *buffer.canvas.shape[1:]), np.uint8)
        alone = functools.partial(buffer.run, step=1)
        difference = largest_difference(alone, functools.partial(buffer.run, step=rows), images)
        limit = _REBATCH_TOLERANCE * float(np.abs(alone(images[:1])).max())
        buffer.canvas[:] = self._spec.preprocess.pad_value
        if difference > limit:
            _log.warning("rows run one by one model=%s difference=%.3g limit=%.3g", self._spec.name, difference, limit)
        return difference <= limit


class _Buffer:
    """One canvas, its output, and the requests that are bound to their rows: for each size, one per place."""

    def __init__(self, ov: Any, compiled: dict[int, Any], spec: ModelSpec, *, rows: int) -> None:
        size = spec.preprocess.size
        self.canvas = np.full((rows, size.height, size.width, 3), spec.preprocess.pad_value, np.uint8)
        self._output_name = spec.output_name
        row_shape = tuple(next(iter(compiled.values())).output(spec.output_name).shape)[1:]
        self._output = np.zeros((rows, *row_shape), np.float32)
        self._requests = {
            (first, step): self._bind(ov, model, first, step)
            for step, model in compiled.items()
            for first in range(0, rows - step + 1, 1 if step == 1 else step)
        }
        self._sizes = sorted(compiled, reverse=True)
        self._started: list[Any] = []
        self._count = 0

    def start(self, count: int) -> None:
        self._count, first = count, 0
        self._started = []
        while first < count:
            step = next((size for size in self._sizes if first + size <= count), self._sizes[-1])
            self._started.append(self._requests[first, step])
            first += step
        for request in self._started:
            request.start_async()

    def wait(self) -> NDArray[np.float32]:
        try:
            for request in self._started:
                request.wait()
        except RuntimeError:
            self.end()
            raise
        self._started = []
        return self._output[: self._count]

    def end(self) -> None:
        """Return once nothing reads the canvas or writes the output any more."""
        started, self._started = self._started, []
        for request in started:
            request.cancel()
        for request in started:
            with contextlib.suppress(RuntimeError):  # a cancelled request says so
                request.wait()

    def run(self, images: NDArray[np.uint8], *, step: int) -> NDArray[np.float32]:
        """Infer `step` images at once and return a copy of their output."""
        self.canvas[:step] = images
        self._requests[0, step].infer()
        output: NDArray[np.float32] = self._output[:step].copy()
        return output

    def _bind(self, ov: Any, model: Any, first: int, step: int) -> Any:
        request = model.create_infer_request()
        request.set_input_tensor(ov.Tensor(self.canvas[first : first + step], shared_memory=True))
        output = ov.Tensor(self._output[first : first + step], shared_memory=True)
        request.set_tensor(self._output_name, output)
        return request


def _available_cores() -> int:
    return len(os.sched_getaffinity(0))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("Exception from")), "no reason given")


def _import_openvino() -> Any:
    try:
        import openvino
        import openvino.preprocess
    except ImportError as error:
        raise MissingDependencyError("OpenVINO is not importable", hint="pip install openvino") from error
    return openvino
