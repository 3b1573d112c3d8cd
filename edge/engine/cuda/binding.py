"""The only module that imports pycuda, and only when it is used and the driver has said that it works."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from edge.engine.cuda.libcuda import open_driver
from edge.errors import EngineError, MissingDependencyError

__all__ = ["cuda_errors", "import_pycuda"]

_MEMORY_HINT = "make batch.max_frames or the model smaller, or stop what else uses the GPU's memory"
# What the driver says of a context that no call will ever work in again.
_LOST = ("illegal", "launch fail", "unspecified launch", "hardware stack", "misaligned", "timed out", "uncorrectable")
_LOST_HINT = "the process has to be started again; if it happens again, look into the kernel's log for Xid or nvgpu"


@functools.cache
def import_pycuda() -> Any:
    """Return `pycuda.driver`, initialized.

    Raises:
        EngineError: if there is no driver, or no GPU.
        MissingDependencyError: if pycuda is not installed.
    """
    open_driver()
    try:
        import pycuda.driver as cuda
    except Exception as error:  # also what numpy raises where pycuda was compiled for another
        raise MissingDependencyError(
            f"pycuda is not importable: {error}",
            hint="on a workstation: pip install pycuda; on a Jetson `edge-deploy provision` brings the wheel",
        ) from error
    try:
        cuda.init()
    except cuda.Error as error:
        raise EngineError(f"the CUDA driver gives no GPU: {error}") from error
    return cuda


@contextlib.contextmanager
def cuda_errors(what: str) -> Iterator[None]:
    """Turn pycuda's errors into ours, which begin with `what` was to be done.

    Raises:
        EngineError: then.
    """
    cuda = import_pycuda()
    try:
        yield
    except cuda.MemoryError as error:
        raise EngineError(f"{what}: the GPU is out of memory ({error})", hint=_MEMORY_HINT) from error
    except cuda.Error as error:
        is_lost = any(words in str(error) for words in _LOST)
        raise EngineError(f"{what}: {error}", hint=_LOST_HINT if is_lost else None) from error
