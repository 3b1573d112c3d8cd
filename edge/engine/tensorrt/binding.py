"""The only module that imports TensorRT, and only when it is used: whichever of its libraries is installed.

Its logger keeps messages, because reasons come there only, and passes them on to the program's log.
"""

from __future__ import annotations

import enum
import functools
import importlib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from edge.engine.tensorrt.facts import why_not
from edge.engine.tensorrt.machine import LIBRARIES, read_machine
from edge.errors import MissingDependencyError

__all__ = ["LogSeverity", "MessageLog", "is_out_of_memory"]

_log = logging.getLogger(__name__)
_KEPT = 1000  # errors, and warnings
_TOLD_CHARACTERS = 600
_SKIPPED = re.compile(r"Skipping tactic \S+ due to insufficient memory")
_QUIET = re.compile(rf"Tactic Device request: |.*{_SKIPPED.pattern}")  # two lines for each tactic: told as their number
# Looked at, and of no consequence: TensorRT says how it does what was asked for.
_HARMLESS = (
    "(foreignNode) Converting conv activation scales to fp32.",
    "(foreignNode) Converting conv weight scales to fp32.",
)
# CUDA's words, TensorRT's, and those of the Jetson's memory manager (NvMap, error 12 is ENOMEM).
_OUT_OF_MEMORY = (
    "out of memory",
    "outofmemory",
    "cudaerrormemoryallocation",
    "nvmapmemallocinternaltagged",
    "bad_alloc",
)


class LogSeverity(enum.IntEnum):
    """TensorRT's, by its numbers."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class MessageLog:
    """Takes TensorRT's messages, from any of its threads; keeps errors, and apart from them warnings, each once.

    What explains a failure is not lost among the 10^5 lines that a build says of its tactics, which are only passed on.

    Attributes:
        skipped_tactics: ways to compute a layer that a build did not try for lack of memory.
    """

    def __init__(self) -> None:
        self._errors: dict[str, None] = {}
        self._warnings: dict[str, None] = {}
        self.skipped_tactics = 0

    def add(self, severity: int, text: str) -> None:
        """Take a message, told loudly once if it is serious; `severity` is TensorRT's number."""
        if severity > LogSeverity.WARNING:
            _log.debug("tensorrt: %s", text)
            return
        is_error, told = severity <= LogSeverity.ERROR, text.strip()
        kept = self._errors if is_error else self._warnings
        self.skipped_tactics += bool(_SKIPPED.search(told))
        is_quiet = told.startswith(_HARMLESS) or _QUIET.match(told)
        is_loud = told not in kept and len(kept) < _KEPT and not is_quiet
        if len(kept) < _KEPT:
            kept[told] = None
        level = logging.ERROR if is_error else logging.WARNING
        _log.log(level if is_loud else logging.DEBUG, "tensorrt: %s", told)

    def warnings(self) -> tuple[str, ...]:
        """Return the texts of errors, and of warnings that are not known to be harmless."""
        return (*self._errors, *(text for text in self._warnings if not text.startswith(_HARMLESS)))

    def reason(self) -> str:
        """Return what a person has to know of a failure: the errors, else the last warning."""
        told = "; ".join(self._errors) or next(iter(self.warnings()[-1:]), "TensorRT gave no reason")
        return told[:_TOLD_CHARACTERS]


def is_out_of_memory(texts: Iterable[str]) -> bool:
    return any(
        word in text.lower().replace(" ", "").replace("_", "") or word in text.lower()
        for text in texts
        for word in _OUT_OF_MEMORY
    )


if TYPE_CHECKING:
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

    IRuntimeCache: TypeAlias = Any  # of TensorRT for RTX alone
    IRuntimeConfig: TypeAlias = Any

__all__ = ["Abilities", "TensorRtLibrary", "abilities_of", "import_tensorrt", "library_of", "make_logger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Features of a library."""

    has_calibrators: bool  # classes that calibrate, and read and write a calibration cache (until 10.x)
    has_dynamic_ranges: bool  # the range of a tensor can be set (until 10.x)
    has_precision_flags: bool  # INT8 and FP16 are flags of a build, and the builder picks where (until 10.x)
    has_strong_typing: bool  # a network computes in the types that the ONNX states (since 10; always since 11)
    has_explicit_batch_flag: bool  # a network is made with a flag for what all of them are since 10
    # an int8 weight may stand behind a DequantizeLinear alone. TensorRT 8 wants a pair behind a float weight;
    # nothing on its surface says so, but what came with 10.0, as that did, is there: int64
    takes_int8_weights: bool
    has_progress_monitor: bool  # a build tells how far it is (since 10)
    has_node_of_error: bool  # a parser's error names the node (since 10)
    has_chosen_capability: bool  # a build for a GPU that is not in this machine (TensorRT for RTX)
    has_context_strategies: bool  # a context takes memory by a strategy, of a stated size (since 10.1)
    has_own_graphs: bool  # it compiles kernels and captures graphs itself, where it runs (TensorRT for RTX)

    @property
    def is_always_strongly_typed(self) -> bool:
        """Whether there is no other typing than what the ONNX states."""
        return self.has_strong_typing and not self.has_precision_flags


def abilities_of(trt: Any) -> Abilities:
    flags, networks = trt.BuilderFlag, trt.NetworkDefinitionCreationFlag
    return Abilities(
        has_calibrators=hasattr(trt, "IInt8EntropyCalibrator2"),
        has_dynamic_ranges=hasattr(trt.ITensor, "set_dynamic_range"),
        has_precision_flags=hasattr(flags, "INT8") and hasattr(flags, "FP16"),
        has_strong_typing=hasattr(networks, "STRONGLY_TYPED"),
        has_explicit_batch_flag=hasattr(networks, "EXPLICIT_BATCH"),
        takes_int8_weights=hasattr(trt, "int64"),
        has_progress_monitor=hasattr(trt, "IProgressMonitor"),
        has_node_of_error=hasattr(trt.ParserError, "node_name"),
        has_chosen_capability=hasattr(trt.IBuilderConfig, "set_compute_capability"),
        has_context_strategies=hasattr(trt.IExecutionContext, "set_device_memory"),
        has_own_graphs=hasattr(trt, "CudaGraphStrategy"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLibrary:
    """An imported TensorRT."""

    trt: Any
    name: str  # `tensorrt` or `tensorrt_rtx`
    version: str  # as `10.3.0`
    abilities: Abilities

    @property
    def number(self) -> int:
        """The version as the header of a calibration cache has it: 8.6.1 is 8601, 10.3.0 is 100300."""
        major, minor, patch = (int(part) for part in (*self.version.split("."), "0", "0")[:3])
        return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch


@functools.cache
def import_tensorrt() -> TensorRtLibrary:
    """Return the first of `LIBRARIES` that can be imported.

    Raises `MissingDependencyError` if none can, with how to get one.
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
    name = "tensorrt_rtx" if "rtx" in trt.__name__ else "tensorrt"
    return TensorRtLibrary(trt=trt, name=name, version=str(trt.__version__), abilities=abilities_of(trt))


def make_logger(library: TensorRtLibrary, log: MessageLog) -> ILogger:
    """The logger has to outlive what is made with it."""
    base: Any = library.trt.ILogger

    class _Logger(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)  # pybind11 refuses an object whose own __init__ was not called

        def log(self, severity: Any, text: str) -> None:
            log.add(int(severity), text)

    made: ILogger = _Logger()
    return made
