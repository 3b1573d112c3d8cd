"""The GPU that a plan is for, asked of the CUDA driver: TensorRT itself crashes where there is none."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from edge.engine.cuda.libcuda import open_driver

__all__ = ["TensorrtDevice", "read_device"]

# enum CUdevice_attribute in cuda.h
_INTEGRATED, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 18, 75, 76
_NAME_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtDevice:
    """A GPU.

    Attributes:
        name: as the driver tells it.
        compute_capability: major and minor.
        memory_bytes: of its memory; on an integrated GPU that is the machine's.
        is_integrated: whether it shares the machine's memory, as a Jetson's does.
    """

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    is_integrated: bool

    @property
    def capability(self) -> str:
        """As `8.7`."""
        return "{}.{}".format(*self.compute_capability)


def read_device(index: int = 0) -> TensorrtDevice:
    """Return the GPU; no context is made on it, and pycuda is not needed.

    Raises:
        EngineError: if there is no driver, or it has no such GPU.
    """
    driver = open_driver()
    handle, memory = ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.call("cuDeviceGet", ctypes.byref(handle), index)
    driver.call("cuDeviceGetName", name, _NAME_BYTES, handle)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        return value.value

    return TensorrtDevice(
        name=name.value.decode("utf-8", "replace"),
        compute_capability=(attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)),
        memory_bytes=memory.value,
        is_integrated=bool(attribute(_INTEGRATED)),
    )
