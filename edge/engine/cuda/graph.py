"""CUDA graphs: what a stream was given once, given again in one call. pycuda 2026.1 has none.

Source: CUDA Driver API, "Stream Management" (capture) and "Graph Management".
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

from edge.engine.cuda.libcuda import CudaCallError, open_driver

__all__ = ["CudaGraph", "capture"]

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile is no part of it


class CudaGraph:
    """A captured sequence of work, ready to be launched; belongs to the context that was current when it was made."""

    def __init__(self, executable: ctypes.c_void_p) -> None:
        self._executable = executable
        self._driver = open_driver()

    def launch(self, stream: int) -> None:
        """Give the whole sequence to `stream`, a handle.

        Raises:
            CudaCallError: if the driver refuses it.
        """
        self._driver.call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream))

    def close(self) -> None:
        """Free it; nothing of it may be running."""
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
