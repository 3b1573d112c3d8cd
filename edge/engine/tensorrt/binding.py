"""The only module that imports TensorRT, and only when it is used: whichever of its libraries is installed."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.abilities import Abilities, abilities_of
from edge.engine.tensorrt.facts import why_not
from edge.engine.tensorrt.log import MessageLog
from edge.engine.tensorrt.machine import LIBRARIES, read_machine
from edge.errors import MissingDependencyError

if TYPE_CHECKING:  # the types of TensorRT, for whoever names one in its own `if TYPE_CHECKING`
    from tensorrt import Builder as Builder
    from tensorrt import EngineInspector as EngineInspector
    from tensorrt import IBuilderConfig as IBuilderConfig
    from tensorrt import ICudaEngine as ICudaEngine
    from tensorrt import IExecutionContext as IExecutionContext
    from tensorrt import ILayer as ILayer
    from tensorrt import ILogger as ILogger
    from tensorrt import INetworkDefinition as INetworkDefinition
    from tensorrt import IOptimizationProfile as IOptimizationProfile
    from tensorrt import IProfiler as IProfiler
    from tensorrt import ITensor as ITensor
    from tensorrt import OnnxParser as OnnxParser
    from tensorrt import ParserError as ParserError
    from tensorrt import Runtime as Runtime

__all__ = ["TensorRtLibrary", "import_tensorrt", "library_of", "make_logger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLibrary:
    """An imported TensorRT.

    Attributes:
        trt: the module.
        name: `tensorrt` or `tensorrt_rtx`.
        version: as `10.3.0`.
        abilities: what it offers.
    """

    trt: Any
    name: str
    version: str
    abilities: Abilities

    @property
    def number(self) -> int:
        """The version as the header of a calibration cache has it: 8.6.1 is 8601, 10.3.0 is 100300."""
        major, minor, patch = (int(part) for part in (*self.version.split("."), "0", "0")[:3])
        return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch


@functools.cache
def import_tensorrt() -> TensorRtLibrary:
    """Return the first of `LIBRARIES` that can be imported.

    Raises:
        MissingDependencyError: if none can, with how to get one.
    """
    failures: list[str] = []
    for name in LIBRARIES:
        try:
            trt = importlib.import_module(name)
        except Exception as error:  # whatever the libraries below it raise
            if not (isinstance(error, ModuleNotFoundError) and error.name == name):
                failures.append(f"{name} cannot be imported: {error}")
            continue
        if hasattr(trt, "__version__"):  # else a folder of that name, which an uninstalled one has left
            return library_of(trt)
    if failures:
        raise MissingDependencyError("; ".join(failures), hint="install its libraries, of the same version, again")
    reason = why_not(read_machine()) or "TensorRT is not installed"
    raise MissingDependencyError(f"TensorRT is not importable: {reason}")


def library_of(trt: Any) -> TensorRtLibrary:
    """Return what is known of the module `trt`."""
    name = "tensorrt_rtx" if "rtx" in trt.__name__ else "tensorrt"
    return TensorRtLibrary(trt=trt, name=name, version=str(trt.__version__), abilities=abilities_of(trt))


def make_logger(library: TensorRtLibrary, log: MessageLog) -> ILogger:
    """Return a logger for TensorRT that hands everything on to `log`; it has to outlive what is made with it."""
    base: Any = library.trt.ILogger

    class _Logger(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)  # pybind11 refuses an object whose own __init__ was not called

        def log(self, severity: Any, text: str) -> None:
            log.add(int(severity), text)

    made: ILogger = _Logger()
    return made
