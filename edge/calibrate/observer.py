"""Watches many tensors in one pass: arrays by name go in, or counts of them, one histogram for each name is kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import BINS, Histogram, RangeTally, merge
from edge.errors import CalibrationError
from edge.types import MagnitudeCounts

__all__ = ["Observer", "merge_all"]


class Observer:
    """Memory depends on the number of names only, and results on the data only, not on how it was split."""

    def __init__(self, *, bins: int = BINS) -> None:
        self._bins = bins
        self._tallies: dict[str, RangeTally] = {}

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """One for each name so far."""
        return {name: tally.histogram() for name, tally in self._tallies.items()}

    def observe(self, name: str, values: NDArray[np.floating] | MagnitudeCounts) -> None:
        """Count the values of tensor `name`, of any shape, or take over what a device has counted of them.

        Raises:
            CalibrationError: if a value is NaN or infinite; nothing of the array is counted then.
        """
        tally = self._tallies.setdefault(name, RangeTally(self._bins))
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
