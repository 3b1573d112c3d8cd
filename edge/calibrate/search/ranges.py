"""Tensors that are better off with another method: each is tried alone, then the best of them on other images."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edge.calibrate.search.choice import Int8Choice
from edge.calibrate.search.measurements import Measurements

__all__ = ["with_better_ranges"]

_CLOSE = 0.1  # ranges that differ by less are not worth a trial
_MOST_TRIALS = 12  # those closest to the range of now: what is far off seldom helps
_SIZES = (1, 2, 3, 4, 6, 8, 12)


def with_better_ranges(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with other methods for some tensors, or as it is."""
    pairs = sorted(_alternatives(measurements, now), key=lambda pair: _distance(measurements, now, *pair))[
        :_MOST_TRIALS
    ]
    before, *tried = measurements.explored([now, *(now.with_method(tensor, method) for tensor, method in pairs)])
    gains: dict[str, tuple[float, str]] = {}
    for (tensor, method), one in zip(pairs, tried, strict=True):
        if one.is_surely_better_than(before):
            gains[tensor] = max(gains.get(tensor, (0.0, "")), (one.gain_over(before), method))
    choice, grown = now, []
    for _, tensor, method in sorted(((gain, tensor, method) for tensor, (gain, method) in gains.items()), reverse=True):
        choice = choice.with_method(tensor, method)
        grown.append(choice)
    return measurements.better(now, [grown[size - 1] for size in _SIZES if size <= len(grown)])


def _alternatives(measurements: Measurements, now: Int8Choice) -> Iterator[tuple[str, str]]:
    """Yield tensors and methods whose ranges are really different ones."""
    for tensor, ranges in measurements.ranges.items():
        seen = [ranges[now.methods[tensor]]]
        for method, amax in ranges.items():
            if amax > 0 and all(abs(math.log(amax / other)) > _CLOSE for other in seen if other > 0):
                seen.append(amax)
                yield tensor, method


def _distance(measurements: Measurements, now: Int8Choice, tensor: str, method: str) -> float:
    ranges = measurements.ranges[tensor]
    return abs(math.log(ranges[method] / ranges[now.methods[tensor]]))
