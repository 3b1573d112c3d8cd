"""One GPU and its primary context, the one that TensorRT uses too."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from typing import Any

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.libcuda import open_driver
from edge.errors import EngineError

__all__ = ["Gpu"]

_log = logging.getLogger(__name__)


class Gpu:
    """A GPU that is held until `close`.

    Whatever speaks to it does so inside `with gpu.current():`, on whichever thread.

    Attributes:
        name: as the driver tells it.
        compute_capability: major and minor.
        is_integrated: whether it shares the machine's memory, as a Jetson's does.
        processors: streaming multiprocessors.

    Raises:
        EngineError: if there is no driver, or no such GPU.
    """

    def __init__(self, index: int = 0) -> None:
        self._cuda = cuda_driver()
        with cuda_errors("opening the GPU"):
            device = self._cuda.Device(index)
            self.name: str = device.name()
            major, minor = device.compute_capability()
            self.compute_capability = (int(major), int(minor))
            integrated = self._cuda.device_attribute.INTEGRATED
            self.is_integrated = bool(device.get_attribute(integrated))
            self.memory_bytes = int(device.total_memory())
            self.processors = int(device.get_attribute(self._cuda.device_attribute.MULTIPROCESSOR_COUNT))
            self._context: Any = device.retain_primary_context()

    @property
    def is_closed(self) -> bool:
        return self._context is None

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU's context that of the calling thread for as long as the block runs."""
        with cuda_errors("entering the GPU's context"):
            self._context.push()
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Let go of the context; everything that lives in it has been freed before. May be called again if it fails."""
        if self.is_closed:
            return
        # pycuda lets go of a context on whichever thread it is current, and then leaves it current for the driver.
        with cuda_errors("leaving the GPU"):
            self._context.push()
            context, self._context = self._context, None
            context.detach()
        try:
            open_driver().call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        except EngineError as error:  # it has no owner any more
            _log.warning("CUDA teardown failed, continuing reason=%s", error)

    def _leave(self) -> None:
        """Make the context no longer that of this thread. pycuda keeps a list of its own, and aborts if it has a rest.

        Where the driver refuses, it is put beside what pycuda knows once more, and taken away from both.
        """
        try:
            self._cuda.Context.pop()
        except self._cuda.Error as error:
            _log.warning("CUDA context could not be left, trying again reason=%s", error)
            open_driver().call("cuCtxPushCurrent_v2", ctypes.c_void_p(self._context.handle))
            with cuda_errors("leaving the GPU's context"):
                self._cuda.Context.pop()
