"""How fast working sets of different sizes move on some cores of this CPU: read, and copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

__all__ = ["SET_BYTES", "Bandwidths"]

# From what a first-level cache holds to far more than caches do.
SET_BYTES = tuple(1 << power for power in range(14, 29))
_RUN_BYTES = 64 << 20  # in one run: a millisecond or two, so that some runs are not disturbed on a busy machine
_RUNS = 12
_PAGE_BYTES, _APART_BYTES = 4096, 1088  # a copy to the same place of another page waits for itself


class Bandwidths:
    """Memory of the largest set, once; each core works on a part of its own.

    Numpy's inner loops run over one working set again and again, without the interpreter in between.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._memory = [_pages(SET_BYTES[-1] // cores + _APART_BYTES) for _ in range(cores)]

    def measure(self) -> Iterator[tuple[int, float]]:
        """Yield the size of each set in bytes, and the bytes per second of the fastest run, read or copied."""
        with ThreadPoolExecutor(self._cores, thread_name_prefix="bandwidth") as pool:
            for size in SET_BYTES:
                fastest = [_fastest(pool, loops) for loops in (self._copying(size), self._reading(size))]
                yield size, max(fastest)

    def _copying(self, size: int) -> list[tuple[int, Callable[[], object]]]:
        half = size // self._cores // 2
        times = max(1, _RUN_BYTES // size)
        whole = np.dtype(f"V{half}")  # so large an element is copied by one memcpy

        def loop(memory: NDArray[np.uint8]) -> Callable[[], object]:
            source, target = (
                as_strided(memory[start : start + half].view(whole), (times,), (0,))
                for start in (0, half + _APART_BYTES)
            )
            return lambda: np.copyto(target, source)

        return [(2 * half * times, loop(memory)) for memory in self._memory]

    def _reading(self, size: int) -> list[tuple[int, Callable[[], object]]]:
        each = size // self._cores // 4 * 4
        times = max(1, _RUN_BYTES // size)

        def loop(memory: NDArray[np.uint8]) -> Callable[[], object]:
            values = memory[:each].view(np.int32)
            rows = as_strided(values, (times, values.size), (0, values.itemsize), writeable=False)
            largest = np.zeros(times, np.int32)
            return lambda: np.maximum.reduce(rows, axis=1, out=largest)

        return [(each * times, loop(memory)) for memory in self._memory]


def _fastest(pool: ThreadPoolExecutor, loops: list[tuple[int, Callable[[], object]]]) -> float:
    """Return bytes per second of the fastest run, all cores at once."""
    moved, best = sum(size for size, _ in loops), 0.0
    for _ in range(_RUNS):
        began_s = time.perf_counter()
        list(pool.map(lambda one: one[1](), loops))
        best = max(best, moved / (time.perf_counter() - began_s))
    return best


def _pages(size: int) -> NDArray[np.uint8]:
    """Return memory that begins with a page and is written: pages that never were are all the same one."""
    memory = np.ones(size + _PAGE_BYTES, np.uint8)
    start = -memory.ctypes.data % _PAGE_BYTES
    return memory[start : start + size]
