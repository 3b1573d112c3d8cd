"""The used part of `pycuda.driver`, by ctypes: for machines that have the driver and no pycuda.

Names, arguments and meaning are pycuda's; tests/unit/engine/cuda/test_driver.py holds both to the same. Beside NVIDIA's
library nothing is needed, and nothing is compiled (docs/adr/0008).

Source: CUDA Driver API reference manual; structures of arguments: "Execution Control", cuLaunchKernel.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import threading
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edge.engine.cuda.libcuda import CudaCallError, CudaMemoryError, open_driver
from edge.errors import EngineError

__all__ = [
    "Context",
    "Device",
    "Error",
    "Event",
    "MemoryError",
    "Stream",
    "device_attribute",
    "event_flags",
    "host_alloc_flags",
    "init",
    "mem_alloc",
    "mem_get_info",
    "memcpy_dtoh",
    "memcpy_dtoh_async",
    "memcpy_htod",
    "memcpy_htod_async",
    "memset_d32_async",
    "module_from_buffer",
    "pagelocked_empty",
]

_log = logging.getLogger(__name__)

Error = CudaCallError
MemoryError = CudaMemoryError


class device_attribute:  # noqa: N801 - pycuda's name
    """Of CUdevice_attribute."""

    MULTIPROCESSOR_COUNT = 16
    INTEGRATED = 18


class event_flags:  # noqa: N801 - pycuda's name
    """Of CUevent_flags."""

    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2


class host_alloc_flags:  # noqa: N801 - pycuda's name
    """Of the flags of cuMemHostAlloc."""

    DEVICEMAP = 2


def init() -> None:
    open_driver()


class _Held:
    """Something of the driver's, given back by `free`, at the latest when nothing refers to it any more.

    What the driver then says is logged: it is the error of work that was given before. What outlives its context went
    with that: the driver crashes where it is given such a handle.
    """

    _freed_by: ClassVar[str]
    _handle: Any = None

    def __init__(self, handle: Any) -> None:
        self._context = Context.pushed.stack[-1] if Context.pushed.stack else None
        self._handle = handle

    def __del__(self) -> None:
        self.free()

    def free(self) -> None:
        """Give it back; more than once is as good as once."""
        handle, self._handle = self._handle, None
        if handle is None or (self._context is not None and self._context.is_detached):
            return
        try:
            open_driver().call(self._freed_by, handle)
        except EngineError as error:
            _log.warning("CUDA memory could not be freed, continuing reason=%s", error)


class _Pushed(threading.local):
    def __init__(self) -> None:
        self.stack: list[Context] = []


class Context:
    """A device's primary context, held until `detach`; `pushed`: those that are current on this thread."""

    pushed = _Pushed()

    def __init__(self, handle: int, device: int) -> None:
        self.handle, self._device = handle, device
        self.is_detached = False

    def push(self) -> None:
        """Make it current on this thread."""
        open_driver().call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.handle))
        self.pushed.stack.append(self)

    @staticmethod
    def pop() -> None:
        open_driver().call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        del Context.pushed.stack[-1:]

    @staticmethod
    def synchronize() -> None:
        """Wait for all work of the context that is current."""
        open_driver().call("cuCtxSynchronize")

    def detach(self) -> None:
        """Let go of it; it stays current for the driver where it is."""
        self.is_detached = True
        if self in self.pushed.stack:
            self.pushed.stack.remove(self)
        try:
            open_driver().call("cuDevicePrimaryCtxRelease_v2", self._device)
        except CudaCallError as error:
            _log.warning("CUDA context release failed, continuing reason=%s", error)


class Device:
    """One GPU."""

    def __init__(self, index: int) -> None:
        self._index = self._number("cuDeviceGet", index)

    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        open_driver().call("cuDeviceGetName", text, len(text), self._index)
        return text.value.decode("utf-8", "replace")

    def compute_capability(self) -> tuple[int, int]:
        return self.get_attribute(75), self.get_attribute(76)  # COMPUTE_CAPABILITY_MAJOR, _MINOR

    def get_attribute(self, attribute: int) -> int:
        return self._number("cuDeviceGetAttribute", attribute, self._index)

    def total_memory(self) -> int:
        """Return its bytes."""
        size = ctypes.c_size_t()
        open_driver().call("cuDeviceTotalMem_v2", ctypes.byref(size), self._index)
        return size.value

    def retain_primary_context(self) -> Context:
        """Return the context that everybody on this device shares; it is not current by that."""
        handle = ctypes.c_void_p()
        open_driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), self._index)
        return Context(handle.value or 0, self._index)

    def _number(self, call: str, *arguments: int) -> int:
        found = ctypes.c_int()
        open_driver().call(call, ctypes.byref(found), *arguments)
        return found.value


class Stream(_Held):
    """Work in the order in which it is given."""

    _freed_by = "cuStreamDestroy_v2"

    def __init__(self, flags: int = 0) -> None:
        made = ctypes.c_void_p()
        open_driver().call("cuStreamCreate", ctypes.byref(made), flags)
        super().__init__(made)

    @property
    def handle(self) -> int:
        return int(self._handle.value)

    def synchronize(self) -> None:
        open_driver().call("cuStreamSynchronize", self._handle)


class Event(_Held):
    """A place in a stream."""

    _freed_by = "cuEventDestroy_v2"

    def __init__(self, flags: int = 0) -> None:
        made = ctypes.c_void_p()
        open_driver().call("cuEventCreate", ctypes.byref(made), flags)
        super().__init__(made)

    def record(self, stream: Stream) -> None:
        open_driver().call("cuEventRecord", self._handle, stream._handle)

    def synchronize(self) -> None:
        open_driver().call("cuEventSynchronize", self._handle)


class _DeviceAllocation(_Held):
    _freed_by = "cuMemFree_v2"

    def __int__(self) -> int:
        return int(self._handle.value)


class _HostAllocation(_Held):
    """Pinned memory; the array over it has it as its `base`."""

    _freed_by = "cuMemFreeHost"

    def __init__(self, handle: ctypes.c_void_p, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(handle)
        self.__array_interface__ = {"shape": shape, "typestr": dtype.str, "data": (handle.value, False), "version": 3}

    def get_device_pointer(self) -> int:
        address = ctypes.c_uint64()
        open_driver().call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), self._handle, 0)
        return address.value


def mem_alloc(size_bytes: int) -> _DeviceAllocation:
    address = ctypes.c_uint64()
    open_driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
    return _DeviceAllocation(address)


def pagelocked_empty(shape: tuple[int, ...], dtype: DTypeLike, *, mem_flags: int = 0) -> NDArray[Any]:
    """Return an array in pinned memory; its `base` frees it."""
    kind, address = np.dtype(dtype), ctypes.c_void_p()
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    open_driver().call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), mem_flags)
    return np.asarray(_HostAllocation(address, shape, kind))


def mem_get_info() -> tuple[int, int]:
    """Return how many bytes of the GPU's memory are free, and how many there are."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    open_driver().call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def memcpy_htod(target: int, source: NDArray[Any]) -> None:
    open_driver().call("cuMemcpyHtoD_v2", ctypes.c_uint64(target), *_memory_of(source))


def memcpy_dtoh(target: NDArray[Any], source: int) -> None:
    address, size = _memory_of(target)
    open_driver().call("cuMemcpyDtoH_v2", address, ctypes.c_uint64(source), size)


def memcpy_htod_async(target: int, source: NDArray[Any], stream: Stream) -> None:
    open_driver().call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(target), *_memory_of(source), stream._handle)


def memcpy_dtoh_async(target: NDArray[Any], source: int, stream: Stream) -> None:
    address, size = _memory_of(target)
    open_driver().call("cuMemcpyDtoHAsync_v2", address, ctypes.c_uint64(source), size, stream._handle)


def memset_d32_async(target: int, value: int, count: int, stream: Stream) -> None:
    words = ctypes.c_uint64(target), ctypes.c_uint32(value), ctypes.c_size_t(count)
    open_driver().call("cuMemsetD32Async", *words, stream._handle)


def _memory_of(array: NDArray[Any]) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} that is not contiguous cannot be copied")
    return ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)


class _Function:
    def __init__(self, handle: ctypes.c_void_p, module: _Module) -> None:
        self._handle, self._module = handle, module  # which is not unloaded as long as there is a function of it
        self._format = ""

    def prepare(self, arguments: str) -> None:
        """Say what its arguments are, as `struct` writes them."""
        self._format = arguments

    def prepared_async_call(
        self, grid: tuple[int, ...], block: tuple[int, int, int], stream: Stream, *arguments: float
    ) -> None:
        packed = struct.pack(self._format, *arguments)
        size, content = ctypes.c_size_t(len(packed)), ctypes.c_char_p(packed)
        extra = (ctypes.c_void_p * 5)(  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
            1, ctypes.cast(content, ctypes.c_void_p).value, 2, ctypes.addressof(size), None
        )
        grids = (*grid, 1, 1)[:3]
        open_driver().call("cuLaunchKernel", self._handle, *grids, *block, 0, stream._handle, None, extra)


class _Module(_Held):
    _freed_by = "cuModuleUnload"

    def get_function(self, name: str) -> _Function:
        found = ctypes.c_void_p()
        open_driver().call("cuModuleGetFunction", ctypes.byref(found), self._handle, name.encode())
        return _Function(found, self)


def module_from_buffer(image: bytes) -> _Module:
    """Return a cubin or PTX, loaded."""
    made = ctypes.c_void_p()
    open_driver().call("cuModuleLoadData", ctypes.byref(made), image)
    return _Module(made)
