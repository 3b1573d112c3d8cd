"""Measures the peaks of a GPU: arithmetic in each precision, and copying in its memory.

Products come from registers, as fast as it makes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import DeviceBuffer, Gpu, Owner, Stream
from edge.engine.cuda.kernels import Kernels
from edge.engine.kind import Peak
from edge.errors import EngineError
from edge.roofline.machines import Machine, jetson_of_board
from edge.types import Precision

__all__ = ["LEAST_S", "gpu_peaks"]

LEAST_S = 0.1
"""Of a run: the clocks are up then, and what its launch takes does not count."""

_TENSOR_CORES_SINCE = (8, 0)
_THREADS, _WARP = 256, 32
_BLOCKS_PER_PROCESSOR = 4  # two warps or more for each of its four parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """A kernel of `kernels.cu` that multiplies and adds."""

    name: str  # of it; `arguments` behind the sums and the rounds, as `struct` writes them
    arguments: str
    factors: tuple[float, float]  # that it multiplies
    operations: int  # of a warp in a round
    sums: Callable[[int], np.generic]  # what each thread has to have after so many rounds
    most_rounds: int  # after which a sum is still exact
    how: str  # for people


_ONE_HALF, _SIXTEEN_HALF = 0x3C003C00, 0x4C004C00  # two float16 of 1, of 16
_KERNELS = {
    Precision.INT8: _Kernel(
        name="int8_peak",
        arguments="II",
        factors=(0x01010101, 0x01010101),  # four int8 of 1 in each register: a product adds 32 to every sum
        operations=8 * 2 * 16 * 8 * 32,
        sums=lambda rounds: np.int32(8 * 32 * rounds),
        most_rounds=1 << 22,
        how="mma m16n8k32, int8 to int32, dense, from registers",
    ),
    Precision.FP16: _Kernel(
        name="half_peak",
        arguments="II",
        factors=(_ONE_HALF, _ONE_HALF),
        operations=8 * 2 * 16 * 8 * 16,
        sums=lambda rounds: np.uint32(_SIXTEEN_HALF if rounds % 2 else 0),
        most_rounds=1 << 22,
        how="mma m16n8k16, float16 to float16, dense, from registers",
    ),
    Precision.FP32: _Kernel(
        name="float_peak",
        arguments="ff",
        factors=(1.0, 1.0),
        operations=8 * 2 * 16 * _WARP,
        sums=lambda rounds: np.float32(16 * rounds),
        most_rounds=1 << 19,
        how="fused multiply-add, float32, from registers",
    ),
}


def _of_products(
    gpu: Gpu, kernels: Kernels, stream: Stream, owner: Owner, precision: Precision, known: Machine | None
) -> Peak:
    """Return what one long run of products reached: operations, a multiply and its add being two."""
    made, name = _KERNELS[precision], _NAMES[precision]
    if precision is not Precision.FP32 and gpu.compute_capability < _TENSOR_CORES_SINCE:
        what, (major, minor) = made.how.partition(",")[0], gpu.compute_capability
        why = f"not measured: {what} begins with compute capability 8.0, this is {major}.{minor}"
        return Peak(name=name, unit="TOPS", value=None, detail=why)
    blocks = gpu.processors * _BLOCKS_PER_PROCESSOR
    sums: NDArray[np.generic] = np.empty(blocks * _THREADS, made.sums(0).dtype)
    target = owner.keep(DeviceBuffer(sums.nbytes))
    kernel = kernels.function(made.name, f"PI{made.arguments}")

    def run(rounds: int) -> None:
        kernel.prepared_async_call((blocks, 1), (_THREADS, 1, 1), stream.raw, target.address, rounds, *made.factors)

    with cuda_errors(f"measuring {precision.value}"):
        rounds, elapsed_s = longest_run(run, stream, most=made.most_rounds)
        cuda_driver().memcpy_dtoh(sums, target.address)
    if not (sums == made.sums(rounds)).all():
        raise EngineError(f"{gpu.name}: products in {precision.value} came to a wrong sum")
    operations = rounds * made.operations * blocks * _THREADS // _WARP
    peak = known.peak(precision) if known is not None and precision is Precision.INT8 else None
    return Peak(
        name=name,
        unit="TOPS",
        value=round(operations / elapsed_s / 1e12, 3),
        detail=f"{gpu.name}: {made.how}, {elapsed_s * 1e3:.0f} ms",
        ceiling=None if peak is None else round(peak / 1e12, 1),
    )


def longest_run(run: Callable[[int], None], stream: Stream, *, most: int) -> tuple[int, float]:
    """Run ever more, until it takes `LEAST_S`; return how much, and its seconds. The first runs warm the clocks up."""
    amount = 1
    while True:
        began_s = time.perf_counter()
        run(amount)
        stream.synchronize()
        elapsed_s = time.perf_counter() - began_s
        if elapsed_s >= LEAST_S or amount == most:
            return amount, elapsed_s
        amount = min(2 * amount, most)


_NAMES = {
    Precision.INT8: "int8 tensor cores",
    Precision.FP16: "fp16 tensor cores",
    Precision.FP32: "fp32 CUDA cores",
}
_COPY_BYTES, _VECTOR_BYTES = 256 << 20, 16
_FREE_SHARE = 4  # two buffers, and a service beside them


def gpu_peaks(board: str | None) -> Iterator[Peak]:
    """Yield the peaks of the GPU; `board` is the machine's name in its device tree, for the figures of the table.

    Raises `EngineError` if there is no GPU, or it computes something else than it should.
    """
    gpu = Gpu()
    try:
        with gpu.current(), Owner() as owner:
            known = jetson_of_board(board or "", gpu.memory_bytes)
            kernels, stream = owner.keep(Kernels(gpu)), owner.keep(Stream())
            for precision in _NAMES:
                yield _of_products(gpu, kernels, stream, owner, precision, known)
            yield _copy(kernels, stream, owner, known)
    finally:
        gpu.close()


def _copy(kernels: Kernels, stream: Stream, owner: Owner, known: Machine | None) -> Peak:
    cuda = cuda_driver()
    free, _ = cuda.mem_get_info()
    size = min(_COPY_BYTES, free // _FREE_SHARE) // _VECTOR_BYTES * _VECTOR_BYTES
    source, target = owner.keep(DeviceBuffer(size)), owner.keep(DeviceBuffer(size))
    kernel, vectors = kernels.function("copy_peak", "PPQ"), size // _VECTOR_BYTES
    blocks = min(-(-vectors // _THREADS), 1 << 14)

    def run(times: int) -> None:
        for _ in range(times):
            kernel.prepared_async_call(
                (blocks, 1), (_THREADS, 1, 1), stream.raw, source.address, target.address, vectors
            )

    with cuda_errors("measuring the memory"):
        times, elapsed_s = longest_run(run, stream, most=1 << 12)
    return Peak(
        name="memory copy",
        unit="GB/s",
        value=round(2 * size * times / elapsed_s / 1e9, 2),
        detail=f"read and written, {size >> 20} MiB by a kernel, {times} times",
        ceiling=None if known is None else round(known.bytes_per_s / 1e9, 1),
    )
