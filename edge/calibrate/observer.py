"""Watches many tensors in one pass: arrays by name go in, one histogram for each name is kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import BINS, Histogram, count, merge
from edge.errors import CalibrationError

__all__ = ["Observer", "merge_all"]


class Observer:
    """Memory depends on the number of names only, and results on the data only, not on how it was split."""

    def __init__(self, *, bins: int = BINS) -> None:
        self._bins = bins
        self._histograms: dict[str, Histogram] = {}

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """One for each name so far."""
        return dict(self._histograms)

    def observe(self, name: str, values: NDArray[np.floating]) -> None:
        """Count the values of tensor `name`, of any shape.

        Raises:
            CalibrationError: if a value is NaN or infinite; nothing of the array is counted then.
        """
        try:
            found = count(values, bins=self._bins)
        except CalibrationError as error:
            raise CalibrationError(
                f'tensor "{name}": {error.problem}',
                hint="the float model overflows on this image, or the engine is broken; keep the tensor in float",
            ) from error
        before = self._histograms.get(name)
        self._histograms[name] = found if before is None else merge(before, found)


def merge_all(one: Mapping[str, Histogram], other: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Return the histograms of both runs; names that only one of them has are taken as they are."""
    merged = dict(one)
    for name, histogram in other.items():
        merged[name] = merge(merged[name], histogram) if name in merged else histogram
    return merged
