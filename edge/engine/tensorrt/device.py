"""The GPU that a plan is for, asked of the CUDA driver: TensorRT itself crashes where there is none."""

from __future__ import annotations

from dataclasses import dataclass

from edge.engine.cuda.driver import Device, device_attribute

__all__ = ["TensorrtDevice", "read_device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtDevice:
    """A GPU."""

    name: str  # as the driver tells it
    compute_capability: tuple[int, int]  # major and minor
    memory_bytes: int  # of its memory; on an integrated GPU that is the machine's
    is_integrated: bool  # whether it shares the machine's memory, as a Jetson's does

    @property
    def capability(self) -> str:
        return "{}.{}".format(*self.compute_capability)


def read_device(index: int = 0) -> TensorrtDevice:
    """Return the GPU; no context is made on it. Raises `EngineError` if there is no driver, or it has no such GPU."""
    device = Device(index)
    return TensorrtDevice(
        name=device.name(),
        compute_capability=device.compute_capability(),
        memory_bytes=device.total_memory(),
        is_integrated=bool(device.get_attribute(device_attribute.INTEGRATED)),
    )
