"""A real GPU in place of the stand-in: `EDGE_REAL_CUDA=1 python -m pytest tests/unit/engine` on a machine with one.

The driver is the machine's, and so is pycuda where it is installed (EDGE_CUDA=ctypes: the product's own calls). What
only a stand-in can do or count is skipped. `is_integrated` is said of a GPU whatever it is: canvases are then mapped.
TensorRT stays the fake one, whose work a stream of the GPU calls between two real copies of its tensors.
"""

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.libcuda import CudaCallError, open_driver

_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE
_OURS = ("is_integrated", "is_lazy")  # the GPU is as late as it is


class RealDevice:
    """The part of `StandIn` that a GPU has."""

    def __init__(self) -> None:
        self.settings: dict[str, int] = {}
        self.failures: list[Exception] = []
        self._work: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count(1)
        self._callback = _HOST_FUNCTION(self._run)
        self._places: dict[object, dict[str, ctypes.c_void_p]] = {}

    def set(self, **settings: int) -> None:
        for name, value in settings.items():
            if name not in _OURS:
                pytest.skip(f"{name} of a real GPU cannot be set")
            self.settings[name] = int(value)

    def __getitem__(self, name: str) -> int:
        pytest.skip(f"{name} is counted by the stand-in alone")

    def counted(self) -> contextlib.AbstractContextManager[dict[str, int]]:
        pytest.skip("calls are counted by the stand-in alone")

    def give(self, stream: int, work: Any, addresses: dict[str, int], bytes_of: Any) -> bool:
        """Give a stream copies to the host, `work`, and copies back; from the second time on it may be capturing."""
        driver, order = open_driver(), ctypes.c_void_p(stream)
        extents = {name: bytes_of(name) for name in addresses}
        places = self._places_of(addresses, extents)
        number = next(self._numbers)
        self._work[number] = lambda: work({name: place.value for name, place in places.items()})
        try:
            for name, (size, is_read) in extents.items():
                if is_read:
                    copy = places[name], ctypes.c_uint64(addresses[name]), ctypes.c_size_t(size)
                    driver.call("cuMemcpyDtoHAsync_v2", *copy, order)
            driver.call("cuLaunchHostFunc", order, self._callback, ctypes.c_void_p(number))
            for name, (size, is_read) in extents.items():
                if not is_read:
                    copy = ctypes.c_uint64(addresses[name]), places[name], ctypes.c_size_t(size)
                    driver.call("cuMemcpyHtoDAsync_v2", *copy, order)
        except CudaCallError as error:
            self.failures.append(error)
            return False
        return True

    def _places_of(self, addresses: dict[str, int], extents: Any) -> dict[str, ctypes.c_void_p]:
        key = (*addresses.items(), *extents.items())
        if key not in self._places:
            self._places[key] = {name: ctypes.c_void_p() for name in addresses}
            for name, place in self._places[key].items():
                size = ctypes.c_size_t(extents[name][0])
                open_driver().call("cuMemHostAlloc", ctypes.byref(place), size, _PORTABLE)
        return self._places[key]

    def _run(self, number: int) -> None:
        try:
            self._work[number]()
        except Exception as error:  # on a thread of the driver, where it would be lost
            self.failures.append(error)


@contextlib.contextmanager
def real_device(**settings: int) -> Iterator[RealDevice]:
    """Let a block of code find the machine's own GPU, said to be integrated (as the stand-in is) or not."""
    device = RealDevice()
    device.set(**{"is_integrated": 1, **settings})
    opened = Gpu.__init__

    def open_as_said(gpu: Gpu, index: int = 0) -> None:
        opened(gpu, index)
        gpu.is_integrated = bool(device.settings["is_integrated"])

    cuda_driver()
    with mock.patch.object(Gpu, "__init__", open_as_said):
        yield device
    assert device.failures == []
