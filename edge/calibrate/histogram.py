"""How often which |x| occurred in one tensor: a value of fixed size whose merge is exact.

Bins are as wide as a power of two, [i, i + 1) times the width, and the whole range is the smallest power of two above
the largest value seen. So doubling the range is adding neighbours, a bin of a value never depends on what came before
it, and any split or order of the same data gives the same bits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import CalibrationError
from edge.types import HISTOGRAM_BINS, MagnitudeCounts

__all__ = ["BINS", "Histogram", "Observer", "RangeTally", "merge", "merge_all"]

BINS = HISTOGRAM_BINS
_SMALLEST_EXPONENT = -100  # below 2**-100 everything is one range, so that its scale stays a finite float32
_CHUNK = 1 << 16  # values at once: index buffers that stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Counts of |x| in bins over [0, 2**exponent)."""

    exponent: int
    counts: NDArray[np.int64]  # int64 (bins,), values above zero; read-only
    zeros: int  # how many values were exactly zero; they are in no bin
    amax: float  # the largest |x|, exact; 0 when there is no value above zero

    def __post_init__(self) -> None:
        bins = len(self.counts)
        if bins < 2 or bins & (bins - 1) or self.counts.dtype != np.int64 or self.counts.ndim != 1:
            raise ValueError(f"counts are int64 in a power of two of bins, got {self.counts.dtype} {self.counts.shape}")
        if self.exponent != exponent_of(self.amax) or self.zeros < 0 or bool((self.counts < 0).any()):
            raise ValueError(f"a range of 2**{self.exponent} and {self.zeros} zeros do not fit amax {self.amax}")
        self.counts.flags.writeable = False

    @property
    def bin_width(self) -> float:
        return math.ldexp(1.0, self.exponent) / len(self.counts)

    @property
    def total(self) -> int:
        """How many values were seen, zeros included."""
        return self.zeros + int(self.counts.sum())

    @property
    def occupied(self) -> int:
        """Number of bins up to the one that holds the largest value; 0 when all values are zero."""
        return int(self.amax / self.bin_width) + 1 if self.amax else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = (self.exponent, self.zeros, self.amax), (other.exponent, other.zeros, other.amax)
        return mine == theirs and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self.exponent, self.zeros, self.amax))


class RangeTally:
    """Counts array after array into one histogram: equal to counting each and merging, without what that allocates."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(BINS, np.int64)
        self._exponent = _SMALLEST_EXPONENT
        self._zeros = 0
        self._amax = 0.0

    def add(self, values: NDArray[np.floating]) -> None:
        """Count |x| of an array of any shape.
        Raises `CalibrationError` if a value is NaN or infinite; nothing is counted then.
        """
        with np.errstate(over="ignore"):  # a float64 beyond float32 is infinite, and told so
            flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        before = self._counts.copy(), self._exponent, self._zeros, self._amax
        for start in range(0, len(flat), _CHUNK):
            if not self._add_chunk(flat[start : start + _CHUNK]):
                self._counts, self._exponent, self._zeros, self._amax = before
                raise _not_finite(int(np.count_nonzero(~np.isfinite(flat))), len(flat))

    def join(self, counted: MagnitudeCounts) -> None:
        """Add what a device has counted: equal to counting the same values here. Raises CalibrationError if a value was
        NaN or infinite; nothing is counted then.
        """
        if counted.not_finite:
            raise _not_finite(counted.not_finite, counted.total)
        self._widen(counted.amax)
        self._counts += _joined(counted.counts, self._exponent - exponent_of(counted.amax))
        self._zeros += counted.zeros

    def _add_chunk(self, chunk: NDArray[np.float32]) -> bool:
        """Count what fits into the cache, so that memory is read once; return whether all of it is finite."""
        scaled, truncated, where, is_above = (buffer[: len(chunk)] for buffer in _scratch())
        bins = len(self._counts)
        peak = self._scale(chunk, scaled)
        if not math.isfinite(peak):
            return False
        if self._widen(peak):
            self._scale(chunk, scaled)
        zeros = len(chunk) - int(np.count_nonzero(np.not_equal(chunk, 0, out=is_above)))
        np.copyto(truncated, scaled, casting="unsafe")
        np.copyto(where, truncated)  # in two steps, each of which the processor has an instruction for
        self._counts += np.bincount(where, minlength=bins)
        self._counts[0] -= zeros
        self._zeros += zeros
        return True

    def _scale(self, chunk: NDArray[np.float32], scaled: NDArray[np.float32]) -> float:
        """Put |x| in bins into `scaled`; return the largest |x|. All of it exact: the scale is a power of two."""
        scale = math.ldexp(float(len(self._counts)), -self._exponent)
        with np.errstate(over="ignore", invalid="ignore"):
            np.abs(np.multiply(chunk, np.float32(scale), out=scaled), out=scaled)
        peak = float(scaled.max(initial=0))
        return peak / scale if peak < math.inf else float(np.abs(chunk).max())  # far above a small range, or NaN

    def histogram(self) -> Histogram:
        return Histogram(exponent=self._exponent, counts=self._counts.copy(), zeros=self._zeros, amax=self._amax)

    def _widen(self, amax: float) -> bool:
        """Double the range until it holds `amax`; return whether it has changed."""
        exponent = exponent_of(amax)
        has_changed = exponent > self._exponent
        if has_changed:
            self._counts = _joined(self._counts, exponent - self._exponent)
            self._exponent = exponent
        self._amax = max(self._amax, amax)
        return has_changed


def _not_finite(wrong: int, total: int) -> CalibrationError:
    return CalibrationError(f"expected finite values, {wrong} of {total} are NaN or infinite")


_buffers = threading.local()


def _scratch() -> tuple[NDArray[Any], ...]:
    """Return buffers for one chunk: scaled, truncated, index, mask. Fresh memory for each would cost a third more."""
    if not hasattr(_buffers, "arrays"):
        _buffers.arrays = tuple(np.empty(_CHUNK, dtype) for dtype in (np.float32, np.int32, np.intp, np.bool_))
    arrays: tuple[NDArray[Any], ...] = _buffers.arrays
    return arrays


def merge(one: Histogram, other: Histogram) -> Histogram:
    """Return the histogram of the data of both; associative and commutative, to the bit.
    Raises `ValueError` if they have different numbers of bins.
    """
    if len(one.counts) != len(other.counts):
        raise ValueError(f"histograms of {len(one.counts)} and {len(other.counts)} bins do not merge")
    exponent = max(one.exponent, other.exponent)
    return Histogram(
        exponent=exponent,
        counts=_joined(one.counts, exponent - one.exponent) + _joined(other.counts, exponent - other.exponent),
        zeros=one.zeros + other.zeros,
        amax=max(one.amax, other.amax),
    )


def exponent_of(amax: float) -> int:
    """Return the exponent of the smallest power of two above `amax`."""
    return max(math.frexp(amax)[1], _SMALLEST_EXPONENT) if amax else _SMALLEST_EXPONENT


def _joined(counts: NDArray[np.int64], doublings: int) -> NDArray[np.int64]:
    """Return the counts over a range that is 2**`doublings` as large: so many neighbours become one."""
    bins = len(counts)
    neighbours = 1 << min(doublings, bins.bit_length() - 1)
    joined: NDArray[np.int64] = np.zeros(bins, np.int64)
    joined[: bins // neighbours] = counts.reshape(-1, neighbours).sum(axis=1)
    return joined


class Observer:
    """Memory depends on the number of names only, and results on the data only, not on how it was split."""

    def __init__(self) -> None:
        self._tallies: dict[str, RangeTally] = {}

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        return {name: tally.histogram() for name, tally in self._tallies.items()}

    def observe(self, name: str, values: NDArray[np.floating] | MagnitudeCounts) -> None:
        """Count the values of tensor `name`, of any shape, or take over what a device has counted of them.
        Raises `CalibrationError` if a value is NaN or infinite; nothing of the array is counted then.
        """
        tally = self._tallies.setdefault(name, RangeTally())
        try:
            if isinstance(values, MagnitudeCounts):
                tally.join(values)
            else:
                tally.add(values)
        except CalibrationError as error:
            raise CalibrationError(
                f'tensor "{name}": {error.problem}',
                hint="the float model overflows on this image, or the engine is broken; keep the tensor in float",
            ) from error


def merge_all(one: Mapping[str, Histogram], other: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Return the histograms of both runs; names that only one of them has are taken as they are."""
    merged = dict(one)
    for name, histogram in other.items():
        merged[name] = merge(merged[name], histogram) if name in merged else histogram
    return merged
