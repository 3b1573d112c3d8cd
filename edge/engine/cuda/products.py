"""Products from registers, as fast as a GPU makes them: the peak of its arithmetic in each precision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, Owner
from edge.engine.cuda.stream import Stream
from edge.errors import EngineError
from edge.types import Precision

__all__ = ["LEAST_S", "ProductRate", "longest_run", "product_rate", "why_no_products"]

LEAST_S = 0.1
"""Of a run: the clocks are up then, and what its launch takes does not count."""

_TENSOR_CORES_SINCE = (8, 0)
_THREADS, _WARP = 256, 32
_BLOCKS_PER_PROCESSOR = 4  # two warps or more for each of its four parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRate:
    """Operations per second, a multiply and its add being two, over so many seconds; `how` is for people."""

    per_s: float
    elapsed_s: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """A kernel of `kernels.cu` that multiplies and adds.

    Attributes:
        name: of it; `arguments` behind the sums and the rounds, as `struct` writes them.
        factors: that it multiplies.
        operations: of a warp in a round.
        sums: what each thread has to have after so many rounds.
        most_rounds: after which a sum is still exact.
        how: for people.
    """

    name: str
    arguments: str
    factors: tuple[float, float]
    operations: int
    sums: Callable[[int], np.generic]
    most_rounds: int
    how: str


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


def why_no_products(gpu: Gpu, precision: Precision) -> str | None:
    """Return why the peak in a precision cannot be measured on this GPU; None: it can be."""
    if precision is Precision.FP32 or gpu.compute_capability >= _TENSOR_CORES_SINCE:
        return None
    what, (major, minor) = _KERNELS[precision].how.partition(",")[0], gpu.compute_capability
    return f"not measured: {what} begins with compute capability 8.0, this is {major}.{minor}"


def product_rate(gpu: Gpu, kernels: Kernels, stream: Stream, owner: Owner, precision: Precision) -> ProductRate:
    """Return what one long run of products reached; the GPU is current.

    Raises:
        EngineError: if it computes something else than it should.
    """
    made = _KERNELS[precision]
    blocks = gpu.processors * _BLOCKS_PER_PROCESSOR
    sums: NDArray[np.generic] = np.empty(blocks * _THREADS, made.sums(0).dtype)
    target = owner.keep(DeviceBuffer(sums.nbytes))
    kernel = kernels.function(made.name, f"PI{made.arguments}")

    def run(rounds: int) -> None:
        kernel.prepared_async_call((blocks, 1), (_THREADS, 1, 1), stream.raw, target.address, rounds, *made.factors)

    with cuda_errors(f"measuring {precision.value}"):
        rounds, elapsed_s = longest_run(run, stream, most=made.most_rounds, least_s=LEAST_S)
        import_pycuda().memcpy_dtoh(sums, target.address)
    if not (sums == made.sums(rounds)).all():
        raise EngineError(f"{gpu.name}: products in {precision.value} came to a wrong sum")
    operations = rounds * made.operations * blocks * _THREADS // _WARP
    return ProductRate(per_s=operations / elapsed_s, elapsed_s=elapsed_s, how=made.how)


def longest_run(run: Callable[[int], None], stream: Stream, *, most: int, least_s: float) -> tuple[int, float]:
    """Run ever more, until it takes `least_s`; return how much, and its seconds. The first runs warm the clocks up."""
    amount = 1
    while True:
        began_s = time.perf_counter()
        run(amount)
        stream.synchronize()
        elapsed_s = time.perf_counter() - began_s
        if elapsed_s >= least_s or amount == most:
            return amount, elapsed_s
        amount = min(2 * amount, most)
