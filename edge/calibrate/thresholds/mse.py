"""The range with the smallest squared error between values and what int8 makes of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Histogram

__all__ = ["mse"]

_LEVELS = 127  # of a symmetric int8, above zero
_FIRST_CANDIDATE = 32  # in bins: 1/64 of the range at least

FloatArray = NDArray[np.float64]


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
