"""The methods by name."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from edge.calibrate.histogram import Histogram
from edge.calibrate.thresholds.entropy import entropy
from edge.calibrate.thresholds.minmax import minmax
from edge.calibrate.thresholds.mse import mse
from edge.calibrate.thresholds.percentile import PERCENT, percentile

__all__ = ["Method", "range_of"]


class Method(str, enum.Enum):
    """How the range of one tensor is chosen."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    MSE = "mse"
    ENTROPY = "entropy"


def range_of(histogram: Histogram, method: Method, *, percent: float = PERCENT) -> float:
    """Return the range that `method` gives, at most the largest value; 0 only where every value is zero.

    Args:
        percent: of the values that `percentile` keeps; the other methods do not look at it.
    """
    if method is Method.PERCENTILE:
        return percentile(histogram, percent)
    return _OTHERS[method](histogram)


_OTHERS: Mapping[Method, Callable[[Histogram], float]] = {
    Method.MINMAX: minmax,
    Method.MSE: mse,
    Method.ENTROPY: entropy,
}
