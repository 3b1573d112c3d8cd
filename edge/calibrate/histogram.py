"""How often which |x| occurred in one tensor, a value of fixed size whose merge is exact; methods that find its range.

Bins are as wide as a power of two, [i, i + 1) times the width, and the whole range is the smallest power of two above
the largest value seen. So doubling the range is adding neighbours, a bin of a value never depends on what came before
it, and any split or order of the same data gives the same bits.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import CalibrationError
from edge.types import HISTOGRAM_BINS, MagnitudeCounts

__all__ = [
    "BINS",
    "Histogram",
    "Method",
    "Observer",
    "RangeTally",
    "entropy",
    "merge",
    "merge_all",
    "minmax",
    "mse",
    "percentile",
]

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


# The range that loses the least information, by Kullback-Leibler divergence.
#
# Source: NVIDIA's open implementation (pytorch-quantization, `calib/histogram.py`), with its peculiarities: the first
# bin takes the count of the second (zeros and what is near them do not vote), 128 levels, candidates from the 128th
# bin on, the clipped values count into the last bin of the reference but not of what is quantized, the last of equal
# minima.

_ENTROPY_LEVELS = 128
_EQUAL = 1e-9  # closer divergences are equal, so that rounding does not choose

FloatArray = NDArray[np.float64]


def entropy(histogram: Histogram) -> float:
    """Return the edge of a bin, or the maximum where that is smaller."""
    occupied = histogram.occupied
    if occupied < _ENTROPY_LEVELS:
        return histogram.amax
    found = divergences(histogram.counts[:occupied])
    last = int(np.flatnonzero(found <= found.min() + _EQUAL)[-1])
    return min((last + _ENTROPY_LEVELS) * histogram.bin_width, histogram.amax)


def divergences(counts: NDArray[np.int64]) -> FloatArray:
    """Return the divergence of each candidate, the first of which keeps 128 bins and the last all of them.

    Infinite where the last kept bin is empty but takes the clipped values: what has no chance after quantization then
    has one in the reference. All bins kept is always finite, as long as the last one is not empty.

    A level replaces the counts of its bins that are not empty by their mean. So the divergence of a candidate needs
    only sums over its 128 levels, which are differences of cumulated sums.
    """
    bins = counts.copy()
    bins[0] = bins[1]
    below, filled, reference = (_entropy_cumulated(a) for a in (bins, bins > 0, _n_log_n(bins)))
    kept = np.arange(_ENTROPY_LEVELS, len(bins) + 1)
    edges = -(
        -np.outer(kept, np.arange(_ENTROPY_LEVELS + 1)) // _ENTROPY_LEVELS
    )  # first bin at or above j / 128 of the range
    of_level = np.diff(below[edges], axis=1)
    logs = _log(of_level) - _log(np.diff(filled[edges], axis=1))
    last, clipped = bins[kept - 1], below[-1] - below[kept]
    self_term = reference[kept - 1] + _n_log_n(last + clipped)
    cross_term = (of_level * logs).sum(axis=1) + clipped * logs[:, -1]
    found = (self_term - cross_term) / below[-1] - np.log(below[-1]) + _log(below[kept])
    divergence: FloatArray = np.where((last == 0) & (clipped > 0), np.inf, found)
    return divergence


def _entropy_cumulated(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of all values before each position; one more than there are values."""
    return np.concatenate(([0], np.cumsum(values)))


def _log(values: NDArray[Any]) -> FloatArray:
    logs: FloatArray = np.log(values, out=np.zeros(values.shape), where=values > 0)  # 0 log 0 is 0
    return logs


def _n_log_n(values: NDArray[Any]) -> FloatArray:
    product: FloatArray = values * _log(values)
    return product


_LEVELS = 127  # of a symmetric int8, above zero
_FIRST_CANDIDATE = 32  # in bins: 1/64 of the range at least


def mse(histogram: Histogram) -> float:
    """Return the candidate with the smallest squared error; candidates are the edges of the bins, and the maximum.

    The values of a bin are taken to lie evenly in it, so that a level narrower than a bin still has its error.
    """
    if not histogram.occupied:
        return 0.0
    amax = histogram.amax / histogram.bin_width
    edges = np.arange(_FIRST_CANDIDATE, np.ceil(amax), dtype=np.float64)
    candidates = np.append(edges, amax)
    best = int(np.argmin(squared_errors(histogram.counts[: histogram.occupied], candidates)))
    return float(candidates[best] * histogram.bin_width)


def squared_errors(counts: NDArray[np.int64], ranges: FloatArray) -> FloatArray:
    """Return the sum of squared errors for each range; lengths in bins.

    With N and M the number and the sum of the values below x, and levels j * s that begin at b_j = (j - 1/2) s, the
    error, the sum over levels of (x - j s)^2, is
    sum x^2 - 2 s (127 M(inf) - sum M(b_j)) + s^2 (127^2 N(inf) - sum (2 j - 1) N(b_j)):
    127 look-ups for each range, where the definition takes all bins.
    """
    below, sum_below = _cumulated(counts)
    level = np.arange(1, _LEVELS + 1)
    scale = ranges / _LEVELS
    begin = np.minimum(scale[:, None] * (level - 0.5), len(counts))
    bin_ = np.minimum(begin.astype(np.intp), len(counts) - 1)
    inside = begin - bin_
    within = counts[bin_] * inside
    numbers = below[bin_] + within
    sums = sum_below[bin_] + within * (bin_ + inside / 2)
    k = np.arange(len(counts), dtype=np.float64)
    squares = float((counts * (k * k + k + 1 / 3)).sum())
    first = _LEVELS * sum_below[-1] - sums.sum(axis=1)
    second = _LEVELS**2 * below[-1] - numbers @ (2.0 * level - 1)
    errors: FloatArray = squares - 2 * scale * first + scale**2 * second
    return errors


def _cumulated(counts: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return number and sum of the values below each edge."""
    centre = np.arange(len(counts)) + 0.5
    below = np.concatenate(([0.0], np.cumsum(counts, dtype=np.float64)))
    return below, np.concatenate(([0.0], np.cumsum(counts * centre)))


def percentile(histogram: Histogram, percent: float = 99.99) -> float:
    """Return the upper edge of the bin in which `percent` of all values (zeros included) are reached.

    At most the largest value, and never 0 unless all values are zero: a tensor of almost only zeros keeps one bin.
    Raises `ValueError` if `percent` is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and at most 100, got {percent}")
    rank = math.ceil(Fraction(str(percent)) / 100 * histogram.total)  # exact, where 0.9999 * n is not
    position = int(np.searchsorted(np.cumsum(histogram.counts), rank - histogram.zeros, side="left"))
    return min((position + 1) * histogram.bin_width, histogram.amax)


def minmax(histogram: Histogram) -> float:
    """Return the largest |x|, exact."""
    return histogram.amax


class Method(str, enum.Enum):
    """How the range of one tensor is chosen."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    MSE = "mse"
    ENTROPY = "entropy"
