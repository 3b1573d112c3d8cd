"""The GPU that a plan is for, asked of the CUDA driver by ctypes: TensorRT itself crashes where there is no driver."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from edge.errors import EngineError

__all__ = ["Device", "read_device"]

_DRIVER = "libcuda.so.1"
# enum CUdevice_attribute in cuda.h
_INTEGRATED, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 18, 75, 76
_NAME_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
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


def read_device(index: int = 0) -> Device:
    """Return the GPU; no context is made on it.

    Raises:
        EngineError: if there is no driver, or it has no such GPU.
    """
    driver = _driver()
    handle, memory = ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check(driver.cuDeviceGet(ctypes.byref(handle), index), "cuDeviceGet")
    _check(driver.cuDeviceGetName(name, _NAME_BYTES, handle), "cuDeviceGetName")
    _check(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), handle), "cuDeviceTotalMem")

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle), "cuDeviceGetAttribute")
        return value.value

    return Device(
        name=name.value.decode("utf-8", "replace"),
        compute_capability=(attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)),
        memory_bytes=memory.value,
        is_integrated=bool(attribute(_INTEGRATED)),
    )


def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise EngineError(
            f"there is no CUDA driver here: {error}", hint="install NVIDIA's driver, or use kind: auto"
        ) from error
    _check(driver.cuInit(0), "cuInit")
    return driver


def _check(code: int, call: str) -> None:
    if code != 0:
        raise EngineError(
            f"the CUDA driver gives no GPU: {call} returned error {code}",
            hint="nvidia-smi or `edge-deploy doctor` tell more; a restart mends a driver that was just updated",
        )
