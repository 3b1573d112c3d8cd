"""One GPU and its primary context, the one that TensorRT uses too; its memory, streams and graphs.

Pycuda frees streams and events of its own when nothing refers to them any more, these are freed when they are closed.
Graphs, what a stream was given once, given again in one call: pycuda 2026.1 has none. Source: CUDA Driver API, "Stream
Management" (capture) and "Graph Management".
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.libcuda import CudaCallError, open_driver
from edge.errors import EngineError

__all__ = ["CudaEvent", "CudaGraph", "DeviceBuffer", "Gpu", "HostArray", "Owner", "Stream", "capture"]

_log = logging.getLogger(__name__)


class Gpu:
    """The first GPU, held until `close`.

    Whatever speaks to it does so inside `with gpu.current():`, on whichever thread.

    Attributes:
        name: as the driver tells it.
        compute_capability: major and minor.
        is_integrated: whether it shares the machine's memory, as a Jetson's does.
        processors: streaming multiprocessors.

    Raises `EngineError` if there is no driver, or no GPU.
    """

    def __init__(self) -> None:
        self._cuda = cuda_driver()
        with cuda_errors("opening the GPU"):
            device = self._cuda.Device(0)
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


class _Closes(Protocol):
    def close(self) -> None: ...


Resource = TypeVar("Resource", bound=_Closes)


class Owner(contextlib.ExitStack):
    """Closes what it keeps, the last first, also where making the next one failed."""

    def keep(self, resource: Resource) -> Resource:
        """Return `resource`, which is closed when this is."""
        self.callback(resource.close)
        return resource


class HostArray:
    """An array in pinned memory of the host, made and freed while its GPU is current.

    Attributes:
        array: the memory, of use until `close`.

    `is_mapped`: the GPU sees it at `address`.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, *, is_mapped: bool) -> None:
        cuda = cuda_driver()
        flags = cuda.host_alloc_flags.DEVICEMAP if is_mapped else 0
        with cuda_errors(f"pinning {int(np.prod(shape)) * np.dtype(dtype).itemsize} bytes of memory"):
            self.array: NDArray[Any] = cuda.pagelocked_empty(shape, dtype, mem_flags=flags)
            self._allocation: Any = self.array.base
            try:
                self._address = int(self._allocation.get_device_pointer()) if is_mapped else None
            except cuda.Error:
                self._allocation.free()  # while the GPU is current: later it could not be freed
                raise

    @property
    def address(self) -> int:
        assert self._address is not None, "this memory is not mapped"
        return self._address

    def close(self) -> None:
        """Free it; `array` may not be read any more."""
        with cuda_errors("freeing pinned memory"):
            self._allocation.free()


class DeviceBuffer:
    """Memory of the GPU, made and freed while it is current."""

    def __init__(self, size_bytes: int) -> None:
        with cuda_errors(f"taking {size_bytes} bytes of the GPU's memory"):
            self._allocation = cuda_driver().mem_alloc(size_bytes)
        self.address = int(self._allocation)

    def close(self) -> None:
        with cuda_errors("freeing the GPU's memory"):
            self._allocation.free()


_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class Stream:
    """Work that is done in the order in which it was given, made and closed while its GPU is current.

    It does not wait for the legacy stream, nor that for it: a capture of one that does breaks copies of other threads,
    and they break it (CUDA errors 901 and 906). `raw`: pycuda's.
    """

    def __init__(self) -> None:
        with cuda_errors("making a stream"):
            self.raw: Any = cuda_driver().Stream(_NON_BLOCKING)

    @property
    def handle(self) -> int:
        """The driver's."""
        return int(self.raw.handle)

    def synchronize(self) -> None:
        """Raises `EngineError` if some of it failed."""
        with cuda_errors("waiting for a stream"):
            self.raw.synchronize()

    def drain(self) -> None:
        """Wait until nothing of it runs any more, also where the GPU has failed."""
        try:
            self.synchronize()
        except EngineError as error:
            _log.warning("CUDA engine close failed, continuing reason=%s", error)

    def close(self) -> None:
        self.raw = None


class CudaEvent:
    """A place in a stream that can be waited for, without burning a core meanwhile."""

    def __init__(self) -> None:
        cuda = cuda_driver()
        with cuda_errors("making an event"):
            self._event: Any = cuda.Event(cuda.event_flags.BLOCKING_SYNC | cuda.event_flags.DISABLE_TIMING)

    def record(self, stream: Stream) -> None:
        self._event.record(stream.raw)

    def synchronize(self) -> None:
        self._event.synchronize()

    def close(self) -> None:
        self._event = None


_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile is no part of it


class CudaGraph:
    """A captured sequence of work, ready to be launched; belongs to the context that was current when it was made."""

    def __init__(self, executable: ctypes.c_void_p) -> None:
        self._executable = executable
        self._driver = open_driver()

    def launch(self, stream: int) -> None:
        """Give the whole sequence to `stream`, a handle. Raises `CudaCallError` if the driver refuses it."""
        self._driver.call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream))

    def close(self) -> None:
        """Call only when nothing of the graph runs."""
        if self._executable:
            self._driver.call("cuGraphExecDestroy", self._executable)
            self._executable = ctypes.c_void_p()


def capture(stream: int, work: Callable[[], None]) -> CudaGraph:
    """Return what `work` gives to `stream`, without running it.

    Raises `CudaCallError` if the driver cannot capture, and the stream is as it was before; and what `work` raises.
    """
    driver, handle = open_driver(), ctypes.c_void_p(stream)
    driver.call("cuStreamBeginCapture_v2", handle, _THREAD_LOCAL)
    graph = ctypes.c_void_p()
    try:
        work()
    except BaseException:
        _end_quietly(handle, graph)
        raise
    driver.call("cuStreamEndCapture", handle, ctypes.byref(graph))
    with contextlib.ExitStack() as made:
        made.callback(driver.call, "cuGraphDestroy", graph)
        executable = ctypes.c_void_p()
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        replay = CudaGraph(executable)
        try:
            made.close()
        except CudaCallError:
            replay.close()
            raise
    return replay


def _end_quietly(stream: ctypes.c_void_p, graph: ctypes.c_void_p) -> None:
    driver = open_driver()
    try:
        driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    except CudaCallError:  # the capture is broken already: there is no graph
        return
    driver.call("cuGraphDestroy", graph)
