"""The whole range: nothing is clipped."""

from __future__ import annotations

from edge.calibrate.histogram import Histogram

__all__ = ["minmax"]


def minmax(histogram: Histogram) -> float:
    """Return the largest |x|, exact."""
    return histogram.amax
