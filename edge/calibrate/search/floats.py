"""Layers that are worth their time in float: each is tried alone, then the best of them together on other images.

Of a large model only those layers are tried whose neighbourhood helps in float: most of the time goes into making and
loading a model for each trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edge.calibrate.search.choice import Int8Choice, Layer, worth
from edge.calibrate.search.measurements import Measurements

__all__ = ["filled_up", "with_better_floats"]

_SIZES = (1, 2, 3, 4, 6, 8, 12)
_NEIGHBOURS = 4  # layers that are tried together first
_MOST_TRIALS = 24  # layers that are tried alone; a model of no more of them needs no neighbourhoods


def with_better_floats(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with more layers in float, or as it is."""
    layers = _promising(measurements, now, measurements.int8_layers(now))
    before, *alone = measurements.explored([now, *(now.with_floats([layer], "") for layer in layers)])
    measurements.gains = {
        layer: tried.gain_over(before)
        for layer, tried in zip(layers, alone, strict=True)
        if tried.is_surely_better_than(before)
    }
    return measurements.better(now, [*_grown(measurements, now, worth), *_grown(measurements, now, _gain)])


def _promising(measurements: Measurements, now: Int8Choice, layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers whose neighbourhoods gain most in float: half of them for the work, half whatever it costs."""
    if len(layers) <= _MOST_TRIALS:
        return list(layers)
    parts = [layers[first : first + _NEIGHBOURS] for first in range(0, len(layers), _NEIGHBOURS)]
    before, *tried = measurements.glanced([now, *(now.with_floats(part, "") for part in parts)])
    gains = [one.gain_over(before) for one in tried]
    worths = [worth(gain, *part) for gain, part in zip(gains, parts, strict=True)]
    half = _MOST_TRIALS // _NEIGHBOURS // 2
    chosen = {i for rank in (gains, worths) for i in sorted(range(len(parts)), key=lambda i: -rank[i])[:half]}
    return [layer for i in sorted(chosen) for layer in parts[i]]


def filled_up(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with as many useful layers in float as the limits allow, by what they gained alone."""
    for layer in sorted(measurements.gains, key=lambda layer: -worth(measurements.gains[layer], layer)):
        larger = now.with_floats([layer], f"{measurements.gains[layer]:.1%} less error, needed for the promise")
        now = larger if measurements.is_allowed(larger) else now
    return now


def _grown(measurements: Measurements, now: Int8Choice, rank: Callable[[float, Layer], float]) -> Iterator[Int8Choice]:
    """Yield `now` with one, two, three more layers in float, the best ones first, what is not allowed left out."""
    size = 0
    for layer in sorted(measurements.gains, key=lambda layer: -rank(measurements.gains[layer], layer)):
        larger = now.with_floats([layer], f"{measurements.gains[layer]:.1%} less error")
        if size < _SIZES[-1] and measurements.is_allowed(larger):
            now, size = larger, size + 1
            if size in _SIZES:
                yield now


def _gain(gain: float, _: Layer) -> float:
    return gain
