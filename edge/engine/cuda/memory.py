"""Memory of a GPU, and memory of the host that it reads and writes directly."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors

__all__ = ["DeviceBuffer", "HostArray", "Owner"]


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

    Args:
        is_mapped: the GPU sees it at `address`.
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
