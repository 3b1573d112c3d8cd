"""The methods by which the range of a tensor follows from its histogram."""

from __future__ import annotations

import enum
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Histogram

__all__ = ["Method", "entropy", "minmax", "mse", "percentile"]

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
