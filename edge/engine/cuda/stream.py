"""Streams and events, freed when they are closed: pycuda frees its own when nothing refers to them any more.

And CUDA graphs: what a stream was given once, given again in one call; pycuda 2026.1 has none. Source: CUDA Driver API,
"Stream Management" (capture) and "Graph Management".
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable
from typing import Any

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.libcuda import CudaCallError, open_driver
from edge.errors import EngineError

__all__ = ["CudaEvent", "CudaGraph", "Stream", "capture"]

_log = logging.getLogger(__name__)


_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class Stream:
    """Work that is done in the order in which it was given, made and closed while its GPU is current.

    It does not wait for the legacy stream, nor that for it: a capture of one that does breaks copies of other threads,
    and they break it (CUDA errors 901 and 906).
    """

    def __init__(self) -> None:
        with cuda_errors("making a stream"):
            self._stream: Any = cuda_driver().Stream(_NON_BLOCKING)

    @property
    def raw(self) -> Any:
        """Pycuda's."""
        return self._stream

    @property
    def handle(self) -> int:
        """The driver's."""
        return int(self._stream.handle)

    def synchronize(self) -> None:
        """Raises `EngineError` if some of it failed."""
        with cuda_errors("waiting for a stream"):
            self._stream.synchronize()

    def drain(self) -> None:
        """Wait until nothing of it runs any more, also where the GPU has failed."""
        try:
            self.synchronize()
        except EngineError as error:
            _log.warning("CUDA engine close failed, continuing reason=%s", error)

    def close(self) -> None:
        self._stream = None


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

    Raises:
        CudaCallError: if the driver cannot capture; the stream is as it was before.
        EngineError: what `work` raises.
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
