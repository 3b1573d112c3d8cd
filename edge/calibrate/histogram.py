"""How often which |x| occurred in one tensor: a value of fixed size whose merge is exact.

Bins are as wide as a power of two, [i, i + 1) times the width, and the whole range is the smallest power of two above
the largest value seen. So doubling the range is adding neighbours, a bin of a value never depends on what came before
it, and any split or order of the same data gives the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import CalibrationError

__all__ = ["BINS", "Histogram", "count", "merge"]

BINS = 2048
_SMALLEST_EXPONENT = -100  # below 2**-100 everything is one range, so that its scale stays a finite float32
_CHUNK = 1 << 16  # values at once: index buffers that stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Counts of |x| in bins over [0, 2**exponent).

    Attributes:
        counts: int64 (bins,), values above zero; read-only.
        zeros: how many values were exactly zero; they are in no bin.
        amax: the largest |x|, exact; 0 when there is no value above zero.
    """

    exponent: int
    counts: NDArray[np.int64]
    zeros: int
    amax: float

    def __post_init__(self) -> None:
        bins = len(self.counts)
        if bins < 2 or bins & (bins - 1) or self.counts.dtype != np.int64 or self.counts.ndim != 1:
            raise ValueError(f"counts are int64 in a power of two of bins, got {self.counts.dtype} {self.counts.shape}")
        if self.exponent != exponent_of(self.amax) or self.zeros < 0 or bool((self.counts < 0).any()):
            raise ValueError(f"a range of 2**{self.exponent} and {self.zeros} zeros do not fit amax {self.amax}")
        self.counts.flags.writeable = False

    @property
    def bin_width(self) -> float:
        """Width of one bin."""
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


def count(values: NDArray[np.floating], *, bins: int = BINS) -> Histogram:
    """Return the histogram of |x| of an array of any shape.

    Raises:
        CalibrationError: if a value is NaN or infinite.
    """
    with np.errstate(over="ignore"):  # a float64 beyond float32 is infinite, and told so
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    amax = _largest(flat)
    exponent = exponent_of(amax)
    scale = np.float32(math.ldexp(float(bins), -exponent))
    counts: NDArray[np.int64] = np.zeros(bins, np.int64)
    size = min(len(flat), _CHUNK)
    scaled, narrow, index = np.empty(size, np.float32), np.empty(size, np.int32), np.empty(size, np.intp)
    above_zero = 0
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        part, truncated, where = (buffer[: len(chunk)] for buffer in (scaled, narrow, index))
        above_zero += int(np.count_nonzero(np.not_equal(chunk, 0)))
        np.abs(np.multiply(chunk, scale, out=part), out=part)  # exact: the scale is a power of two
        np.copyto(truncated, part, casting="unsafe")
        np.copyto(where, truncated)  # in two steps, each of which the processor has an instruction for
        counts += np.bincount(where, minlength=bins)
    zeros = len(flat) - above_zero
    counts[0] -= zeros
    return Histogram(exponent=exponent, counts=counts, zeros=zeros, amax=amax)


def merge(one: Histogram, other: Histogram) -> Histogram:
    """Return the histogram of the data of both; associative and commutative, to the bit.

    Raises:
        ValueError: if they have different numbers of bins.
    """
    if len(one.counts) != len(other.counts):
        raise ValueError(f"histograms of {len(one.counts)} and {len(other.counts)} bins do not merge")
    exponent = max(one.exponent, other.exponent)
    return Histogram(
        exponent=exponent,
        counts=_widened(one, exponent) + _widened(other, exponent),
        zeros=one.zeros + other.zeros,
        amax=max(one.amax, other.amax),
    )


def exponent_of(amax: float) -> int:
    """Return the exponent of the smallest power of two above `amax`."""
    return max(math.frexp(amax)[1], _SMALLEST_EXPONENT) if amax else _SMALLEST_EXPONENT


def _widened(histogram: Histogram, exponent: int) -> NDArray[np.int64]:
    """Return the counts over [0, 2**exponent): 2**n neighbours become one."""
    bins = len(histogram.counts)
    joined = 1 << min(exponent - histogram.exponent, bins.bit_length() - 1)
    counts: NDArray[np.int64] = np.zeros(bins, np.int64)
    counts[: bins // joined] = histogram.counts.reshape(-1, joined).sum(axis=1)
    return counts


def _largest(flat: NDArray[np.float32]) -> float:
    if not len(flat):
        return 0.0
    largest = max(float(flat.max()), -float(flat.min()))
    if math.isfinite(largest):
        return largest + 0.0  # never -0.0
    wrong = int(np.count_nonzero(~np.isfinite(flat)))
    raise CalibrationError(f"expected finite values, {wrong} of {len(flat)} are NaN or infinite")
