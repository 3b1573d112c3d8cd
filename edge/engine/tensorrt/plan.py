r"""What a device keeps of a TensorRT engine: a header that says what it is for, and TensorRT's own bytes behind it.

    b"EDGETRT1\n" | length of the header, uint32 little-endian | header, JSON | what TensorRT serialized, and compiled

Of a plan of another version or GPU TensorRT says little more than that it cannot be read, and some of its releases
crash. So the header is held against this machine, and its GPU, before TensorRT sees a byte.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import msgspec

from edge.engine.cuda.driver import Device, device_attribute
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.errors import EngineError

__all__ = [
    "PlanHeader",
    "PlanTensor",
    "TensorrtDevice",
    "read_device",
    "require_fit",
    "split_compiled",
    "split_plan",
    "with_compiled",
    "written_plan",
]


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


def read_device() -> TensorrtDevice:
    """Return the first GPU; no context is made on it. Raises `EngineError` if there is no driver, or no GPU."""
    device = Device(0)
    return TensorrtDevice(
        name=device.name(),
        compute_capability=device.compute_capability(),
        memory_bytes=device.total_memory(),
        is_integrated=bool(device.get_attribute(device_attribute.INTEGRATED)),
    )


_MAGIC = b"EDGETRT1\n"
_LENGTH = struct.Struct("<I")
_REBUILD = "it is built again by itself, or: push the release again"


class PlanTensor(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output of the engine: `shape` with -1 for a dynamic batch, `dtype` as numpy calls it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a plan: the software and machine that it is for, its precision and its tensors."""

    library: str  # `tensorrt` or `tensorrt_rtx`
    version: str  # of that library, to the last number: another patch does not read the plan
    compute_capability: tuple[int, int]  # of the GPU, major and minor
    device: str  # its name: a GPU of the same capability and another size runs the plan, slower than one of its own
    precision: str  # `int8`, `fp16` or `fp32`
    route: str  # how it was built (`edge.engine.tensorrt.routes`)
    max_batch: int  # most rows at once
    batch: int | None  # rows of every inference, where the model fixes them; None: 1 to `max_batch`
    inputs: tuple[PlanTensor, ...]
    outputs: tuple[PlanTensor, ...]
    dla_core: int | None = None  # on which it runs; None: on the GPU
    sha256: str = ""  # of what follows
    compiled_bytes: int = 0  # of it, at its end: kernels that TensorRT for RTX compiled where it ran first


def written_plan(header: PlanHeader, content: bytes) -> bytes:
    """Return the plan; `header.sha256` is filled in."""
    told = msgspec.json.encode(msgspec.structs.replace(header, sha256=hashlib.sha256(content).hexdigest()))
    return b"".join((_MAGIC, _LENGTH.pack(len(told)), told, content))


def with_compiled(plan: bytes, compiled: bytes) -> bytes:
    header, content = split_plan(plan)
    return written_plan(msgspec.structs.replace(header, compiled_bytes=len(compiled)), content + compiled)


def split_compiled(header: PlanHeader, content: bytes) -> tuple[bytes, bytes]:
    """Return what TensorRT serialized, and what it compiled, of what follows the header."""
    end = len(content) - header.compiled_bytes
    return content[:end], content[end:]


def split_plan(plan: bytes) -> tuple[PlanHeader, bytes]:
    """Return the header, and what follows it. Raises `EngineError` if it is no plan of this kind, or damaged."""
    start = len(_MAGIC) + _LENGTH.size
    if plan[: len(_MAGIC)] != _MAGIC or len(plan) < start:
        raise EngineError("this is no plan of the tensorrt engine", hint=_REBUILD)
    end = start + _LENGTH.unpack_from(plan, len(_MAGIC))[0]
    try:
        header = msgspec.json.decode(plan[start:end], type=PlanHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineError(f"the plan's header cannot be read: {error}", hint=_REBUILD) from error
    content = plan[end:]
    if hashlib.sha256(content).hexdigest() != header.sha256:
        raise EngineError(f"the plan is damaged: its {len(content)} bytes are not what was built", hint=_REBUILD)
    return header, content


def require_fit(header: PlanHeader, library: TensorRtLibrary, device: TensorrtDevice) -> None:
    """Raises `EngineError` naming what the plan was built by and what is here."""
    if (header.library, header.version) != (library.name, library.version):
        raise EngineError(
            f"the plan was built by {header.library} {header.version}, here is {library.name} {library.version}",
            hint=_REBUILD,
        )
    if header.compute_capability != device.compute_capability or header.device != device.name:
        built = "{} (compute capability {}.{})".format(header.device, *header.compute_capability)
        raise EngineError(
            f"the plan was built for {built}, here is {device.name} (compute capability {device.capability})",
            hint=_REBUILD,
        )
