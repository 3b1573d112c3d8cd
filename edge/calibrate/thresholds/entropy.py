"""The range that loses the least information, by Kullback-Leibler divergence.

Source: NVIDIA's open implementation (pytorch-quantization, `calib/histogram.py`), with its peculiarities: the first bin
takes the count of the second (zeros and what is near them do not vote), 128 levels, candidates from the 128th bin on,
the clipped values count into the last bin of the reference but not of what is quantized, the last of equal minima.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Histogram

__all__ = ["divergences", "entropy"]

_LEVELS = 128
_EQUAL = 1e-9  # closer divergences are equal, so that rounding does not choose

FloatArray = NDArray[np.float64]


def entropy(histogram: Histogram) -> float:
    """Return the edge of a bin, or the maximum where that is smaller."""
    occupied = histogram.occupied
    if occupied < _LEVELS:
        return histogram.amax
    found = divergences(histogram.counts[:occupied])
    last = int(np.flatnonzero(found <= found.min() + _EQUAL)[-1])
    return min((last + _LEVELS) * histogram.bin_width, histogram.amax)


def divergences(counts: NDArray[np.int64]) -> FloatArray:
    """Return the divergence of each candidate, the first of which keeps 128 bins and the last all of them.

    Infinite where the last kept bin is empty but takes the clipped values: what has no chance after quantization then
    has one in the reference. All bins kept is always finite, as long as the last one is not empty.

    A level replaces the counts of its bins that are not empty by their mean. So the divergence of a candidate needs
    only sums over its 128 levels, which are differences of cumulated sums.
    """
    bins = counts.copy()
    bins[0] = bins[1]
    below, filled, reference = (_cumulated(a) for a in (bins, bins > 0, _n_log_n(bins)))
    kept = np.arange(_LEVELS, len(bins) + 1)
    edges = -(-np.outer(kept, np.arange(_LEVELS + 1)) // _LEVELS)  # first bin at or above j / 128 of the range
    of_level = np.diff(below[edges], axis=1)
    logs = _log(of_level) - _log(np.diff(filled[edges], axis=1))
    last, clipped = bins[kept - 1], below[-1] - below[kept]
    self_term = reference[kept - 1] + _n_log_n(last + clipped)
    cross_term = (of_level * logs).sum(axis=1) + clipped * logs[:, -1]
    found = (self_term - cross_term) / below[-1] - np.log(below[-1]) + _log(below[kept])
    divergence: FloatArray = np.where((last == 0) & (clipped > 0), np.inf, found)
    return divergence


def _cumulated(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of all values before each position; one more than there are values."""
    return np.concatenate(([0], np.cumsum(values)))


def _log(values: NDArray[Any]) -> FloatArray:
    logs: FloatArray = np.log(values, out=np.zeros(values.shape), where=values > 0)  # 0 log 0 is 0
    return logs


def _n_log_n(values: NDArray[Any]) -> FloatArray:
    product: FloatArray = values * _log(values)
    return product
