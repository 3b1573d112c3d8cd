"""Base of everything that runs an engine of TensorRT: its GPU, owned memory, and description."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.memory import HostArray, Owner
from edge.engine.cuda.stream import Stream
from edge.engine.tensorrt.binding import TensorRtLibrary, make_logger
from edge.engine.tensorrt.log import MessageLog
from edge.errors import EngineError, TensorMismatchError
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ICudaEngine, ILogger, Runtime

__all__ = ["Loaded", "TensorRtRunner", "load_engine"]


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


_log = logging.getLogger(__name__)


class TensorRtRunner:
    """`edge.protocols.Runner` but for `start` and `wait`.

    Everything on the GPU is made and used inside `_at_work`, and kept by `_owner`; streams come from `_stream`, and are
    drained before anything is freed.

    Args:
        max_batch: rows of each canvas.

    Raises:
        EngineError: if there is no driver.
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
