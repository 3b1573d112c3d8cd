"""What bounds layers on a GPU, measured: products in each precision, and working sets of different sizes."""

from __future__ import annotations

from collections.abc import Iterator

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.memory import DeviceBuffer, Owner
from edge.engine.cuda.products import longest_run, product_rate, why_no_products
from edge.engine.cuda.stream import Stream
from edge.roofline.measured import MeasuredMachine, Rate, WorkingSet
from edge.types import Precision

__all__ = ["GpuRoofMeter"]

SET_BYTES = tuple(1 << exponent for exponent in range(16, 29))  # 64 KiB to 256 MiB: caches of GPUs, and beyond
_LEAST_S = 0.02  # of each
_MOST_TIMES = 1 << 20
_VECTOR_BYTES, _THREADS, _BLOCKS_PER_PROCESSOR = 16, 256, 6  # 1536 threads of a processor: all are there at once
_FREE_SHARE = 4


class GpuRoofMeter:
    """`edge.engine.measuring.RoofMeter`: holds the GPU only while it measures.

    Args:
        engine: that computes on it, for the answer.
    """

    def __init__(self, *, engine: str) -> None:
        self._engine = engine

    def measure(self) -> MeasuredMachine:
        """Return what one more round reached.

        Raises:
            EngineError: if there is no GPU, or it computes something else than it should.
            MissingDependencyError: if pycuda is not installed.
        """
        gpu = Gpu()
        try:
            with gpu.current(), Owner() as owner:
                return self._measured(gpu, owner)
        finally:
            gpu.close()

    def _measured(self, gpu: Gpu, owner: Owner) -> MeasuredMachine:
        kernels, stream = owner.keep(Kernels(gpu)), owner.keep(Stream())
        reasons = {kind: why_no_products(gpu, kind) for kind in Precision}
        peaks = {
            kind: Rate(rounds=(product_rate(gpu, kernels, stream, owner, kind).per_s,))
            for kind, why in reasons.items()
            if why is None
        }
        return MeasuredMachine(
            processor=gpu.name,
            cores=1,
            all_cores=1,
            extent=f"{gpu.processors} multiprocessors",
            peaks_of="products from registers",
            engine=self._engine,
            peaks=peaks,
            sets=tuple(_sets(gpu, kernels, stream, owner)),
            cpu_share=1.0,  # what it takes is the GPU's
            why_no={kind: why for kind, why in reasons.items() if why is not None},
        )


def _sets(gpu: Gpu, kernels: Kernels, stream: Stream, owner: Owner) -> Iterator[WorkingSet]:
    """Half of each set is read, and the other half written with it."""
    with cuda_errors("asking for the GPU's memory"):
        free, _ = import_pycuda().mem_get_info()
    sizes = [size for size in SET_BYTES if size <= free // _FREE_SHARE] or list(SET_BYTES[:1])
    source, target = (owner.keep(DeviceBuffer(sizes[-1] // 2)) for _ in range(2))
    kernel = kernels.function("set_peak", "PPQI")
    for size in sizes:
        vectors = size // 2 // _VECTOR_BYTES
        blocks = min(-(-vectors // _THREADS), gpu.processors * _BLOCKS_PER_PROCESSOR)

        def run(times: int, blocks: int = blocks, vectors: int = vectors) -> None:
            where = ((blocks, 1), (_THREADS, 1, 1), stream.raw)
            kernel.prepared_async_call(*where, source.address, target.address, vectors, times)

        with cuda_errors("measuring the memory"):
            times, elapsed_s = longest_run(run, stream, most=_MOST_TIMES, least_s=_LEAST_S)
        yield WorkingSet(size_bytes=size, rate=Rate(rounds=(size * times / elapsed_s,)))
