"""From what TensorRT serialized to an engine that can be run, with TensorRT's own words where that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary, make_logger
from edge.engine.tensorrt.log import MessageLog
from edge.errors import EngineError

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ICudaEngine, ILogger, Runtime

__all__ = ["Loaded", "load_engine"]


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

    Raises:
        EngineError: if TensorRT does not take it, with what it says.
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
