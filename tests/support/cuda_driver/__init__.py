"""The real pycuda over a stand-in for NVIDIA's driver library, in this process; see driver.cpp and build.py."""

import contextlib
import ctypes
import functools
import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.libcuda import open_driver
from tests.support.cuda_driver.build import driver_library, pycuda_folder

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_DEFAULTS = {
    "major": 8,
    "minor": 7,
    "is_integrated": 1,
    "memory_bytes": 8 << 30,
    "init_result": 0,
    "is_lazy": 0,
    "capture_result": 0,
    "lost_after_launches": -1,
    "lost": 0,
    "refused_call": -1,
    "refused_result": 0,
}


_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Work = Callable[[dict[str, int]], None]  # told where of the host each tensor lies
BytesOf = Callable[[str], tuple[int, bool]]  # of a tensor, and whether it is read


HELD = ("live", "contexts", "device_bytes")  # what has to be given back


class StandIn:
    """What a test sets of the device, and what it counted."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.standin_get.restype = ctypes.c_int64
        library.standin_refused.restype = ctypes.c_char_p
        self.settings: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.may_leave = False
        self._work: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count(1)
        self._callback = _HOST_FUNCTION(self._run)

    def set(self, **settings: int) -> None:
        for name, value in settings.items():
            assert name in _DEFAULTS, name
            self.settings[name] = int(value)
            self.library.standin_set(name.encode(), ctypes.c_int64(int(value)))

    def __getitem__(self, name: str) -> int:
        """`live`, `allocations`, `synchronizations`, `launches`, `graph_launches`, `copies_to_device`, ..."""
        return int(self.library.standin_get(name.encode()))

    @property
    def refused(self) -> str:
        """The call that was refused last."""
        return bytes(self.library.standin_refused()).decode()

    def give(self, stream: int, work: Work, addresses: dict[str, int], bytes_of: BytesOf) -> bool:
        """Put `work` into a stream, which may be capturing; what it raises is kept in `failures`."""
        number = next(self._numbers)
        self._work[number] = lambda: work(addresses)  # the host's memory is the device's
        code = self.library.cuLaunchHostFunc(ctypes.c_void_p(stream), self._callback, ctypes.c_void_p(number))
        return bool(code == 0)

    def _run(self, number: int) -> None:
        try:
            self._work[number]()
        except Exception as error:  # on a thread of the driver, where nobody would see it
            self.failures.append(error)

    @contextlib.contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """Give what was counted meanwhile, filled in at the end."""
        names = ("allocations", "live", "synchronizations", "launches", "graph_launches", "copies_to_device")
        names += ("copies_to_host", "bytes_to_host")
        before = {name: self[name] for name in names}
        found: dict[str, int] = {}
        yield found
        found |= {name: self[name] - before[name] for name in names}


@contextlib.contextmanager
def stand_in(**settings: int) -> Iterator[StandIn]:
    """Let a block of code find a driver, a device (integrated, of compute capability 8.7) and pycuda.

    What is held at its end has to be given back, but by a test that sets `may_leave`. Where EDGE_REAL_CUDA is set, all
    of it is the machine's own; see real.py.
    """
    if os.environ.get("EDGE_REAL_CUDA"):
        from tests.support.cuda_driver.real import real_device

        with real_device(**settings) as real:
            yield real
        return
    device = StandIn(_loaded())
    device.set(**{**_DEFAULTS, **settings})
    sys.path.insert(0, str(pycuda_folder()))
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)  # pycuda refers to calls that nobody here makes, and that the library has not
    before = {name: device[name] for name in HELD}
    try:
        yield device
        gc.collect()
        assert device.failures == []
        left = {name: device[name] - before[name] for name in HELD if device[name] != before[name]}
        assert device.may_leave or left == {}
    finally:
        device.set(**{**_DEFAULTS, "init_result": _NO_DEVICE})  # the library stays, but nobody has a GPU any more
        sys.path.remove(str(pycuda_folder()))
        sys.setdlopenflags(flags)
        open_driver.cache_clear()
        cuda_driver.cache_clear()


def hide_the_machines_gpu() -> None:
    """Let this process find the stand-in, without a device, and never a driver of the machine: both would be mixed."""
    if not os.environ.get("EDGE_REAL_CUDA"):
        _loaded().standin_set(b"init_result", ctypes.c_int64(_NO_DEVICE))


@functools.cache
def _loaded() -> Any:
    # Whoever asks for libcuda.so.1 after this gets this one: the loader goes by the name that a library has of itself.
    return ctypes.CDLL(str(driver_library()), mode=ctypes.RTLD_GLOBAL)
