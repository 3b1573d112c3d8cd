"""Base of everything that runs an engine of TensorRT: its GPU, owned memory, description, and execution contexts."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.gpu import DeviceBuffer, Gpu, HostArray, Owner, Stream
from edge.engine.tensorrt.binding import MessageLog, TensorRtLibrary, make_logger
from edge.errors import EngineError, TensorMismatchError
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ICudaEngine, ILogger, IProfiler, IRuntimeCache, IRuntimeConfig, Runtime

__all__ = ["Execution", "Executions", "Loaded", "TensorRtRunner", "load_engine"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An engine, and what has to live as long as it does."""

    library: TensorRtLibrary
    engine: ICudaEngine
    runtime: Runtime
    logger: ILogger
    log: MessageLog


def load_engine(library: TensorRtLibrary, content: bytes, *, name: str, dla_core: int | None) -> Loaded:
    """Return the engine of `content`, what TensorRT serialized; the GPU's context is current.

    Raises `EngineError` if TensorRT does not take it, with what it says.
    """
    log = MessageLog()
    logger = make_logger(library, log)
    runtime = library.trt.Runtime(logger)
    if runtime is None:
        raise EngineError(f"{name}: TensorRT has no runtime here: {log.reason()}")
    if dla_core is not None:
        runtime.DLA_core = dla_core  # before the engine is made; otherwise it gets core 0
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        raise EngineError(f"{name}: TensorRT does not take the plan: {log.reason()}", hint="build it again")
    return Loaded(library=library, engine=engine, runtime=runtime, logger=logger, log=log)


class TensorRtRunner:
    """`edge.protocols.Runner` but for `start` and `wait`.

    Everything on the GPU is made and used inside `_at_work`, and kept by `_owner`; streams come from `_stream`, and are
    drained before anything is freed.

    `max_batch`: rows of each canvas.

    Raises `EngineError` if there is no driver.
    """

    def __init__(self, library: TensorRtLibrary, spec: ModelSpec, *, max_batch: int) -> None:
        self._library, self._spec = library, spec
        self.name = f"{library.name} {library.version}"
        self.preprocess = spec.preprocess
        self.max_batch = max_batch
        self._canvases: Sequence[HostArray] = ()
        self._streams: list[Stream] = []
        self._gpu, self._owner = Gpu(), Owner()

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two canvases, uint8 (max_batch, H, W, 3) RGB, in pinned memory: gone with `close`."""
        return tuple(canvas.array[: self.max_batch] for canvas in self._canvases)

    def close(self) -> None:
        """Wait for what runs, and free everything; a second time does nothing, or what the first could not.

        Raises `EngineError` if the GPU cannot be spoken to.
        """
        if self._gpu.is_closed:
            return
        with self._at_work():
            for stream in self._streams:
                stream.drain()
            self._canvases, self._streams = (), []
            try:
                self._owner.close()
            except EngineError as error:  # also where one thing was not freed, the others were
                _log.warning("CUDA engine close failed, continuing reason=%s", error)
        self._gpu.close()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        self._require_open()
        try:
            with self._gpu.current():
                yield
        except EngineError as error:
            _let_go(error)
            raise EngineError(f"{self._spec.name}: {error.problem}", hint=error.hint) from error

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """As `_at_work`; what is there already is freed where it fails."""
        try:
            with self._at_work():
                yield
        except BaseException:
            self.close()
            raise

    def _stream(self) -> Stream:
        stream = self._owner.keep(Stream())
        self._streams.append(stream)
        return stream

    def _require_open(self) -> None:
        if self._gpu.is_closed:
            raise EngineError(f"{self._spec.name}: the engine is closed")

    def _require_rows(self, index: int, count: int) -> None:
        self._require_open()
        if not (0 <= index < len(self._canvases) and 1 <= count <= self.max_batch):
            raise TensorMismatchError(
                f"canvas {index}, rows {count}: this engine has canvases 0 to {len(self._canvases) - 1} "
                f"of 1 to {self.max_batch} rows"
            )


def _let_go(error: BaseException | None) -> None:
    """Empty the frames of what was raised: they hold what lives on the GPU, until it can no longer be freed."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Execution:
    """One context. Work of one context runs in one stream at a time.

    Args:
        name: of the model, for errors.
        stream: handle of the stream in which it is set up.
        make: that makes it, where it is not TensorRT's usual one.

    Raises `EngineError` if TensorRT gives no context, or none that computes.
    """

    def __init__(self, loaded: Loaded, *, name: str, stream: int, make: Callable[[], Any] | None = None) -> None:
        self._loaded, self._name = loaded, name
        context: Any = loaded.engine.create_execution_context() if make is None else make()
        if context is None:
            raise EngineError(f"{name}: TensorRT gives no execution context: {loaded.log.reason()}")
        self._context = context
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        # The first context has the profile; a later one asks for it.
        has_profile = context.active_optimization_profile >= 0 or context.set_optimization_profile_async(0, stream)
        self._check(has_profile, "a context the plan's profile")

    def place(self, addresses: Mapping[str, int]) -> None:
        """Say where the tensors lie on the GPU, all of them; nothing is done where they lie there already.

        Raises `EngineError` if TensorRT has no such tensor.
        """
        if self._addresses == addresses:
            return
        self._addresses = dict(addresses)
        for tensor, address in addresses.items():
            self._check(self._context.set_tensor_address(tensor, address), f"tensor {tensor}")

    def set_shape(self, tensor: str, shape: Sequence[int]) -> None:
        """Say how large an input is; nothing is done where it is that large already.

        Raises `EngineError` if the engine was not built for it.
        """
        wanted = tuple(shape)
        if self._shapes.get(tensor) == wanted:
            return
        self._check(self._context.set_input_shape(tensor, wanted), f"{tensor} of shape {wanted}")
        self._shapes[tensor] = wanted

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return how large a tensor is for the shapes that were set."""
        return tuple(self._context.get_tensor_shape(tensor))

    def enqueue(self, stream: int) -> None:
        """Give one inference to a stream, a handle. Raises `EngineError` if TensorRT refuses."""
        self._check(self._context.execute_async_v3(stream), "inference")

    def report_to(self, profiler: IProfiler) -> None:
        """Have the layers of each inference from now on timed, and told to `profiler` when `report` asks for it.

        It has to live as long as this. Inferences are slower with it.
        """
        self._context.profiler = profiler
        self._context.enqueue_emits_profile = False  # else each inference is waited for where it is given

    def report(self) -> None:
        """Tell the profiler what the layers of the last inference took; its stream has done it.

        Raises `EngineError` if TensorRT refuses.
        """
        self._check(self._context.report_to_profiler(), "to report what its layers took")

    def close(self) -> None:
        """Call only when nothing of the execution runs."""
        self._context = None

    def _check(self, is_done: bool, what: str) -> None:
        if not is_done:
            raise EngineError(f"{self._name}: TensorRT refuses {what}: {self._loaded.log.reason()}")


class Executions:
    """The contexts of an engine that captures are made of: one for each number of rows, so that its shape stays.

    They compute in the same memory, so their work is in one stream. A library that captures by itself has one context.

    Args:
        owner: of contexts and memory.
        name: of the model, for errors.
        stream: handle of the stream.
        runtime_cache: kernels that the library compiled where it ran before.
    """

    def __init__(self, loaded: Loaded, owner: Owner, *, name: str, stream: int, runtime_cache: bytes) -> None:
        self._loaded, self._owner, self._name, self._stream = loaded, owner, name, stream
        self._made: dict[int, Execution] = {}
        self.has_own_graphs = loaded.library.abilities.has_own_graphs
        if self.has_own_graphs:
            self._config = _runtime_config(loaded)
            self._cache: IRuntimeCache = self._kept_cache(runtime_cache)
        else:
            self._size = _memory_bytes(loaded)
            self._memory = owner.keep(DeviceBuffer(max(1, self._size)))

    def of(self, rows: int) -> Execution:
        """Return the context for inferences of as many rows, made when it is first asked for.

        Raises `EngineError` if TensorRT gives none.
        """
        key = 0 if self.has_own_graphs else rows
        if key not in self._made:
            make = self._configured if self.has_own_graphs else self._in_our_memory
            made = Execution(self._loaded, name=self._name, stream=self._stream, make=make)
            self._made[key] = self._owner.keep(made)
        return self._made[key]

    def runtime_cache(self) -> bytes:
        """Return the kernels that were compiled so far, of a library with graphs of its own."""
        return bytes(self._cache.serialize())

    def _configured(self) -> Any:
        engine: Any = self._loaded.engine  # before 10 it takes no argument
        return engine.create_execution_context(self._config)

    def _in_our_memory(self) -> Any:
        engine: Any = self._loaded.engine
        trt, address = self._loaded.library.trt, self._memory.address
        if self._loaded.library.abilities.has_context_strategies:
            context = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
            if context is not None:
                context.set_device_memory(address, self._size)
            return context
        context = engine.create_execution_context_without_device_memory()
        if context is not None:
            context.device_memory = address
        return context

    def _kept_cache(self, content: bytes) -> IRuntimeCache:
        cache = self._config.create_runtime_cache()
        if content and not cache.deserialize(content):
            _log.warning("compiled kernels are not taken model=%s reason=%s", self._name, self._loaded.log.reason())
        self._config.set_runtime_cache(cache)
        return cache


def _runtime_config(loaded: Loaded) -> IRuntimeConfig:
    """Return how TensorRT for RTX runs: kernels for a shape are compiled before it is inferred, and its graph captured.

    As it is by default, graphs of ours would hold the general kernels that it begins with for ever.
    """
    trt, config = loaded.library.trt, loaded.engine.create_runtime_config()
    config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
    config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    return config


def _memory_bytes(loaded: Loaded) -> int:
    engine = loaded.engine
    is_new = loaded.library.abilities.has_context_strategies
    return int(engine.device_memory_size_v2 if is_new else engine.device_memory_size)
