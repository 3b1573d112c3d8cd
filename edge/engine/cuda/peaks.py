"""What a GPU reaches at most, measured: INT8 on its tensor cores, and copying in its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.cutlass import conv_peak
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.jetson_modules import JetsonModule, jetson_module_of
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, Owner
from edge.engine.cuda.stream import Stream
from edge.engine.kind import Peak
from edge.errors import EngineError

__all__ = ["gpu_peaks"]

_LEAST_S = 0.1
_TENSOR_CORES_SINCE = (8, 0)

_THREADS, _WARP = 256, 32
_BLOCKS_PER_PROCESSOR = 4  # two warps or more for each of its four parts
_CHAINS, _OPERATIONS = 8, 2 * 16 * 8 * 32  # of `int8_peak`: products in one round of a warp, operations of a product
_ONES, _TERMS = 0x01010101, 32  # four int8 of 1 in each register: a product adds 32 to every sum
_MOST_ROUNDS = 1 << 22  # a sum stays below 2^31

_COPY_BYTES, _VECTOR_BYTES = 256 << 20, 16
_FREE_SHARE = 4  # two buffers, and a service beside them


def gpu_peaks(board: str | None) -> Iterator[Peak]:
    """Yield the peaks of the GPU; `board` is the machine's name in its device tree, for the datasheet's figures.

    Raises:
        EngineError: if there is no GPU, or it computes something else than it should.
        MissingDependencyError: if pycuda is not installed.
    """
    gpu = Gpu()
    try:
        with gpu.current(), Owner() as owner:
            known = jetson_module_of(board, gpu.memory_bytes)
            kernels, stream = owner.keep(Kernels(gpu)), owner.keep(Stream())
            yield _int8(gpu, kernels, stream, owner, known)
            yield _copy(kernels, stream, owner, known)
        yield conv_peak(gpu)
    finally:
        gpu.close()


def _int8(gpu: Gpu, kernels: Kernels, stream: Stream, owner: Owner, module: JetsonModule | None) -> Peak:
    if gpu.compute_capability < _TENSOR_CORES_SINCE:
        major, minor = gpu.compute_capability
        why = f"not measured: mma.m16n8k32 begins with compute capability 8.0, this is {major}.{minor}"
        return Peak(name="int8 tensor cores", unit="TOPS", value=None, detail=why)
    blocks = gpu.processors * _BLOCKS_PER_PROCESSOR
    sums = np.empty(blocks * _THREADS, np.int32)
    target = owner.keep(DeviceBuffer(sums.nbytes))
    kernel = kernels.function("int8_peak", "PIII")

    def run(rounds: int) -> None:
        kernel.prepared_async_call((blocks, 1), (_THREADS, 1, 1), stream.raw, target.address, rounds, _ONES, _ONES)

    with cuda_errors("measuring INT8"):
        rounds, elapsed_s = _longest(run, stream, most=_MOST_ROUNDS)
        import_pycuda().memcpy_dtoh(sums, target.address)
    if not (sums == rounds * _CHAINS * _TERMS).all():
        raise EngineError(f"{gpu.name}: the tensor cores computed a wrong sum")
    operations = rounds * _CHAINS * _OPERATIONS * blocks * _THREADS // _WARP
    return Peak(
        name="int8 tensor cores",
        unit="TOPS",
        value=round(operations / elapsed_s / 1e12, 3),
        detail=f"{gpu.name}: mma m16n8k32, int8 to int32, dense, from registers, {elapsed_s * 1e3:.0f} ms",
        ceiling=None if module is None else module.int8_tops,
    )


def _copy(kernels: Kernels, stream: Stream, owner: Owner, module: JetsonModule | None) -> Peak:
    cuda = import_pycuda()
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
        times, elapsed_s = _longest(run, stream, most=1 << 12)
    return Peak(
        name="memory copy",
        unit="GB/s",
        value=round(2 * size * times / elapsed_s / 1e9, 2),
        detail=f"read and written, {size >> 20} MiB by a kernel, {times} times",
        ceiling=None if module is None else module.memory_gb_s,
    )


def _longest(run: Callable[[int], None], stream: Stream, *, most: int) -> tuple[int, float]:
    """Run ever more, until it takes `_LEAST_S`; return how much, and its seconds. The first runs warm the clocks up."""
    amount = 1
    while True:
        began_s = time.perf_counter()
        run(amount)
        stream.synchronize()
        elapsed_s = time.perf_counter() - began_s
        if elapsed_s >= _LEAST_S or amount == most:
            return amount, elapsed_s
        amount = min(2 * amount, most)
