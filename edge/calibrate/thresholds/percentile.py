"""A share of all values is kept, the largest ones are clipped."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from edge.calibrate.histogram import Histogram

__all__ = ["PERCENT", "percentile"]

PERCENT = 99.99


def percentile(histogram: Histogram, percent: float = PERCENT) -> float:
    """Return the upper edge of the bin in which `percent` of all values (zeros included) are reached.

    At most the largest value, and never 0 unless all values are zero: a tensor of almost only zeros keeps one bin.

    Raises:
        ValueError: if `percent` is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and at most 100, got {percent}")
    rank = math.ceil(Fraction(str(percent)) / 100 * histogram.total)  # exact, where 0.9999 * n is not
    position = int(np.searchsorted(np.cumsum(histogram.counts), rank - histogram.zeros, side="left"))
    return min((position + 1) * histogram.bin_width, histogram.amax)
