"""Proofs of CUDA on a machine against numpy: kernels, graphs, PTX, mapped memory, opening and closing."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import DeviceBuffer, Gpu, HostArray, Owner, Stream, capture
from edge.engine.cuda.kernels import FLOAT_TYPES, CellLayout, Kernels, read_kernel_image
from edge.errors import EngineError
from edge.roofline.proof import Row, Verdict
from edge.types import ImageSize, Preprocess

__all__ = ["cuda_proofs"]

_ROWS = 4
_NEWER_THAN_ALL = (99, 0)  # a GPU for which only PTX is there, which its driver compiles
_REPLAYS, _TIMES, _OPENS, _THREADS = 200, 20, 1000, 3
_LEAK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Common part of the proofs while the GPU is current."""

    gpu: Gpu
    kernels: Kernels
    stream: Stream
    owner: Owner
    preprocess: Preprocess
    canvas: NDArray[np.uint8]

    def on_device(self, values: NDArray[np.generic]) -> DeviceBuffer:
        buffer = self.owner.keep(DeviceBuffer(values.nbytes))
        cuda_driver().memcpy_htod(buffer.address, np.ascontiguousarray(values))
        return buffer

    def normalize(self, kernels: Kernels, canvas: int, target: int, dtype: str) -> None:
        kernels.normalize(self.stream.raw, canvas, target, rows=_ROWS, preprocess=self.preprocess, dtype=dtype)

    def normalized(self, kernels: Kernels, canvas: int, dtype: str) -> NDArray[np.generic]:
        """Return the model's input as the GPU makes it of a canvas that lies at an address."""
        shape = (_ROWS, 3, *self.canvas.shape[1:3])
        found = np.empty(shape, dtype)
        target = self.owner.keep(DeviceBuffer(found.nbytes))
        self.normalize(kernels, canvas, target.address, dtype)
        self.stream.synchronize()
        cuda_driver().memcpy_dtoh(found, target.address)
        return found

    def expected(self, dtype: str) -> NDArray[np.generic]:
        """Return the same by numpy; the product is exact in float64, so that it is rounded once, as there."""
        gain = np.float64(np.float32(self.preprocess.scale))
        exact: NDArray[np.float64] = self.canvas.transpose(0, 3, 1, 2) * gain
        return exact.astype(np.float32).astype(dtype)


def cuda_proofs(*, is_brief: bool, opens: int = _OPENS, side: int = 320) -> Iterator[Row]:
    """Yield a row for each; briefly: only whether the kernels compute.

    Raises `EngineError` if there is no GPU, or a call of the driver fails.
    """
    gpu = Gpu()
    try:
        where = "shares the machine's memory" if gpu.is_integrated else "has memory of its own"
        capability = "{}.{}".format(*gpu.compute_capability)
        driver = cuda_driver().__name__
        told = f"{gpu.name}, compute capability {capability}, {gpu.processors} processors, {where}; by {driver}"
        yield Row(name="gpu", verdict=Verdict.TOLD, detail=told)
        with gpu.current(), Owner() as owner, cuda_errors("proving CUDA"):
            canvas = np.random.default_rng(1).integers(0, 256, (_ROWS, side, side, 3), np.uint8)
            size = ImageSize(width=side, height=side)
            bench = _Bench(gpu=gpu, kernels=owner.keep(Kernels(gpu)), stream=owner.keep(Stream()), owner=owner,
                           preprocess=Preprocess(size=size), canvas=canvas)  # fmt: skip
            yield from _kernels(bench)
            if not is_brief:
                yield _ptx(bench)
                yield _graph(bench)
                yield _memories(bench)
        if not is_brief:
            yield _threads()
            yield _opened(opens)
    finally:
        gpu.close()


def _row(name: str, is_good: bool, detail: str) -> Row:
    return Row(name=name, verdict=Verdict.PROVEN if is_good else Verdict.FAILS, detail=detail)


def _kernels(bench: _Bench) -> Iterator[Row]:
    source = bench.on_device(bench.canvas)
    for dtype in FLOAT_TYPES:
        wrong = int((bench.normalized(bench.kernels, source.address, dtype) != bench.expected(dtype)).sum())
        yield _row(f"normalize {dtype}", wrong == 0, f"{wrong} of {bench.canvas.size} values are not numpy's")
        yield _candidates(bench, dtype)


def _candidates(bench: _Bench, dtype: str) -> Row:
    cells, columns, threshold = 2100, 12, 0.9
    output = np.random.default_rng(2).random((_ROWS, columns, cells)).astype(dtype)
    best = output[:, 4:].astype(np.float32).max(axis=1)
    expected = set(np.flatnonzero(best > np.float32(threshold)).tolist())
    capacity = _ROWS * cells
    keys, values = np.empty(capacity, np.uint32), np.empty(1, np.uint32)
    source, counter = bench.on_device(output), bench.on_device(np.zeros(1, np.uint32))
    kept = [bench.owner.keep(DeviceBuffer(size)) for size in (keys.nbytes, 4 * capacity * columns)]
    bench.kernels.candidates(
        bench.stream.raw, source.address, rows=_ROWS, cells=cells, columns=columns, layout=CellLayout.PLANES,
        dtype=dtype, score_threshold=threshold, capacity=capacity, found=counter.address, keys=kept[0].address,
        values=kept[1].address,
    )  # fmt: skip
    bench.stream.synchronize()
    cuda_driver().memcpy_dtoh(values, counter.address)
    cuda_driver().memcpy_dtoh(keys, kept[0].address)
    found = keys[: int(values[0])].tolist()
    is_same = len(found) == len(expected) and set(found) == expected
    return _row(f"candidates {dtype}", is_same, f"{len(found)} cells, numpy finds {len(expected)}")


def _ptx(bench: _Bench) -> Row:
    began_s = time.perf_counter()
    kernels = bench.owner.keep(Kernels(bench.gpu, image=read_kernel_image(_NEWER_THAN_ALL)))
    loaded_s = time.perf_counter() - began_s
    wrong = int((bench.normalized(kernels, bench.on_device(bench.canvas).address, "float32") !=
                 bench.expected("float32")).sum())  # fmt: skip
    return _row("ptx", wrong == 0, f"compiled by the driver in {loaded_s:.1f} s, {wrong} values are not numpy's")


def _graph(bench: _Bench) -> Row:
    """Replay a captured kernel over changing canvases, each looked at."""
    canvas = bench.owner.keep(HostArray(bench.canvas.shape, np.uint8, is_mapped=True))
    found = np.empty((_ROWS, 3, *bench.canvas.shape[1:3]), np.float32)
    target = bench.owner.keep(DeviceBuffer(found.nbytes))

    def work() -> None:
        bench.normalize(bench.kernels, canvas.address, target.address, "float32")

    work()
    bench.stream.synchronize()
    graph = bench.owner.keep(capture(bench.stream.handle, work))
    wrong, expected = 0, bench.expected("float32")
    for number in range(_REPLAYS):
        canvas.array[:] = np.roll(bench.canvas, number, axis=1)
        graph.launch(bench.stream.handle)
        bench.stream.synchronize()
        cuda_driver().memcpy_dtoh(found, target.address)
        wrong += int((found != np.roll(expected, number, axis=2)).any())
    return _row("graph", wrong == 0, f"{wrong} of {_REPLAYS} replays are not numpy's")


def _memories(bench: _Bench) -> Row:
    """Time the kernel over memory that both see, and over a copy."""
    mapped = bench.owner.keep(HostArray(bench.canvas.shape, np.uint8, is_mapped=True))
    mapped.array[:] = bench.canvas
    device = bench.on_device(bench.canvas)
    target = bench.owner.keep(DeviceBuffer(4 * bench.canvas.size))

    def run(address: int) -> None:
        bench.normalize(bench.kernels, address, target.address, "float32")

    def copied() -> None:
        cuda_driver().memcpy_htod_async(device.address, mapped.array, bench.stream.raw)
        run(device.address)

    times = {"mapped": _ms(bench, lambda: run(mapped.address)), "copied": _ms(bench, copied)}
    taken = "mapped" if bench.gpu.is_integrated else "copied"
    detail = (
        f"{_ROWS} canvases: {times['mapped']:.3f} ms mapped, {times['copied']:.3f} ms copied; {taken} is taken here"
    )
    is_best = times[taken] <= 1.2 * min(times.values())
    return Row(name="memory", verdict=Verdict.PROVEN if is_best else Verdict.WORSE, detail=detail, values={**times})


def _ms(bench: _Bench, run: Callable[[], None]) -> float:
    found = []
    for _ in range(_TIMES):
        began_s = time.perf_counter()
        run()
        bench.stream.synchronize()
        found.append(1e3 * (time.perf_counter() - began_s))
    return round(statistics.median(found), 4)


def _threads() -> Row:
    """Open the GPU on some threads at once."""
    errors: list[str] = []

    def open_one() -> None:
        try:
            _open_once()
        except EngineError as error:
            errors.append(error.problem)

    threads = [threading.Thread(target=open_one) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _row("threads", not errors, errors[0] if errors else f"{_THREADS} threads have contexts of their own")


def _opened(count: int) -> Row:
    """Open and close again and again: memory and descriptors stay."""
    marks = []
    for number in range(count + 1):
        _open_once()
        if number in (count // 10, count):
            marks.append((_resident_bytes(), len(os.listdir("/proc/self/fd"))))
    (memory, files), (memory_then, files_then) = marks
    detail = f"{count}: memory grew by {(memory_then - memory) / 2**20:.1f} MiB, descriptors {files} to {files_then}"
    return _row("opens", memory_then - memory < _LEAK_BYTES and files_then <= files + 2, detail)


def _open_once() -> None:
    gpu = Gpu()
    try:
        with gpu.current(), Owner() as owner:
            owner.keep(Stream())
            owner.keep(Kernels(gpu))
    finally:
        gpu.close()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
