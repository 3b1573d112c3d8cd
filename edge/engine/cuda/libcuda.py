"""NVIDIA's driver library through ctypes: whether there is one that works, and its calls by name."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from edge.errors import EngineError, OutOfMemoryError

__all__ = ["CudaCallError", "CudaMemoryError", "DriverLibrary", "open_driver"]

_NAME = "libcuda.so.1"
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class CudaCallError(EngineError):
    """A call of the driver was refused; `code` is its CUresult."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} (CUDA error {code})")
        self.code = code


class CudaMemoryError(CudaCallError, OutOfMemoryError):
    """There is not enough memory for the call."""


class DriverLibrary:
    """The library; `call` raises for every result but success."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver API.

        Raises:
            CudaCallError: if it does not return CUDA_SUCCESS.
            EngineError: if this driver is too old to have it.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise EngineError(f"the CUDA driver has no {name}", hint="CUDA 11.4 or newer is needed") from error
        code = function(*arguments)
        if code != 0:
            kind = CudaMemoryError if code == _OUT_OF_MEMORY else CudaCallError
            raise kind(name, code, self._text(code))

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return "unknown error" if text.value is None else text.value.decode("utf-8", "replace")


@functools.cache
def open_driver() -> DriverLibrary:
    """Return the driver library, initialized.

    It is asked before anything else of CUDA is: TensorRT's objects crash where there is no driver. Raises `EngineError`
    if there is none, or it has no GPU.
    """
    try:
        library = ctypes.CDLL(_NAME)
    except OSError as error:
        raise EngineError(
            f"there is no CUDA driver here: {error}", hint="install NVIDIA's driver, or use engine.kind: auto"
        ) from error
    driver = DriverLibrary(library)
    try:
        driver.call("cuInit", 0)
    except CudaCallError as error:
        raise EngineError(
            f"the CUDA driver gives no GPU: {error.problem}",
            hint="nvidia-smi tells more; a restart mends a driver that was just updated",
        ) from error
    return driver
