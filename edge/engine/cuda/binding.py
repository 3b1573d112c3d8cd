"""CUDA's driver as pycuda gives it: the only module that imports pycuda, once the driver has said that it works."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

from edge.engine.cuda import driver
from edge.engine.cuda.libcuda import open_driver
from edge.errors import EngineError, OutOfMemoryError

__all__ = ["cuda_driver", "cuda_errors"]

_log = logging.getLogger(__name__)

_MEMORY_HINT = "make batch.max_frames or the model smaller, or stop what else uses the GPU's memory"
# What the driver says of a context that no call will ever work in again.
_LOST = ("illegal", "launch fail", "unspecified launch", "hardware stack", "misaligned", "timed out", "uncorrectable")
_LOST_HINT = "the process has to be started again; if it happens again, look into the kernel's log for Xid or nvgpu"


@functools.cache
def cuda_driver() -> Any:
    """Return `pycuda.driver`, initialized, or where pycuda is not installed what stands for it: `driver.py`.

    The variable EDGE_CUDA=ctypes asks for the latter all the same. Raises `EngineError` if there is no driver, or no
    GPU.
    """
    open_driver()
    cuda = driver if os.environ.get("EDGE_CUDA") == "ctypes" else _pycuda() or driver
    try:
        cuda.init()
    except cuda.Error as error:
        raise EngineError(f"the CUDA driver gives no GPU: {error}") from error
    return cuda


def _pycuda() -> Any:
    try:
        import pycuda.driver as cuda
    except Exception as error:  # also what numpy raises where pycuda was compiled for another
        if isinstance(error, ModuleNotFoundError) and error.name in ("pycuda", "pycuda.driver"):
            return None
        _log.warning("pycuda cannot be imported, using ctypes reason=%s", error)
        return None
    return cuda


@contextlib.contextmanager
def cuda_errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into ours, which begin with `what` was to be done.

    Raises `EngineError`: then; `OutOfMemoryError` where that is why.
    """
    cuda = cuda_driver()
    try:
        yield
    except cuda.MemoryError as error:
        raise OutOfMemoryError(f"{what}: the GPU is out of memory ({error})", hint=_MEMORY_HINT) from error
    except cuda.Error as error:
        is_lost = any(words in str(error) for words in _LOST)
        raise EngineError(f"{what}: {error}", hint=_LOST_HINT if is_lost else None) from error
