"""What a GPU reaches at most, measured: its arithmetic in each precision, and copying in its memory."""

from __future__ import annotations

from collections.abc import Iterator

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.cutlass import conv_peak
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.jetson_modules import JetsonModule, jetson_module_of
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, Owner
from edge.engine.cuda.products import LEAST_S, longest_run, product_rate, why_no_products
from edge.engine.cuda.stream import Stream
from edge.engine.kind import Peak
from edge.types import Precision

__all__ = ["gpu_peaks"]

_NAMES = {
    Precision.INT8: "int8 tensor cores",
    Precision.FP16: "fp16 tensor cores",
    Precision.FP32: "fp32 CUDA cores",
}
_THREADS = 256
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
            for precision in _NAMES:
                yield _of_products(gpu, kernels, stream, owner, precision, known)
            yield _copy(kernels, stream, owner, known)
        yield conv_peak(gpu)
    finally:
        gpu.close()


def _of_products(
    gpu: Gpu, kernels: Kernels, stream: Stream, owner: Owner, precision: Precision, module: JetsonModule | None
) -> Peak:
    name = _NAMES[precision]
    if (why := why_no_products(gpu, precision)) is not None:
        return Peak(name=name, unit="TOPS", value=None, detail=why)
    found = product_rate(gpu, kernels, stream, owner, precision)
    return Peak(
        name=name,
        unit="TOPS",
        value=round(found.per_s / 1e12, 3),
        detail=f"{gpu.name}: {found.how}, {found.elapsed_s * 1e3:.0f} ms",
        ceiling=module.int8_tops if module is not None and precision is Precision.INT8 else None,
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
        times, elapsed_s = longest_run(run, stream, most=1 << 12, least_s=LEAST_S)
    return Peak(
        name="memory copy",
        unit="GB/s",
        value=round(2 * size * times / elapsed_s / 1e9, 2),
        detail=f"read and written, {size >> 20} MiB by a kernel, {times} times",
        ceiling=None if module is None else module.memory_gb_s,
    )
