"""Layers that are worth their time in float: each is tried alone, then the best of them together on other images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edge.calibrate.search.bench import Bench
from edge.calibrate.search.choice import Choice, Layer

__all__ = ["filled_up", "with_better_floats"]

_SHARE_OF_ANY = 0.002  # switching between INT8 and float costs something even where a layer does not
_MOST = 12


def with_better_floats(bench: Bench, now: Choice) -> Choice:
    """Return `now` with more layers in float, or as it is."""
    layers = bench.int8_layers(now)
    before, *alone = bench.explored([now, *(now.with_floats([layer], "") for layer in layers)])
    bench.gains = {
        layer: tried.gain_over(before)
        for layer, tried in zip(layers, alone, strict=True)
        if tried.is_surely_better_than(before)
    }
    return bench.better(now, [*_grown(bench, now, _worth), *_grown(bench, now, _gain)])


def filled_up(bench: Bench, now: Choice) -> Choice:
    """Return `now` with as many useful layers in float as the limits allow, by what they gained alone."""
    for layer in sorted(bench.gains, key=lambda layer: -_worth(layer, bench.gains[layer])):
        larger = now.with_floats([layer], f"{bench.gains[layer]:.1%} less error, needed for the promise")
        now = larger if bench.is_allowed(larger) else now
    return now


def _grown(bench: Bench, now: Choice, rank: Callable[[Layer, float], float]) -> Iterator[Choice]:
    """Yield `now` with one, two, three more layers in float, the best ones first, what is not allowed left out."""
    size = 0
    for layer in sorted(bench.gains, key=lambda layer: -rank(layer, bench.gains[layer])):
        larger = now.with_floats([layer], f"{bench.gains[layer]:.1%} less error")
        if size < _MOST and bench.is_allowed(larger):
            now, size = larger, size + 1
            yield now


def _gain(layer: Layer, gain: float) -> float:
    return gain


def _worth(layer: Layer, gain: float) -> float:
    return gain / (layer.mac_share + _SHARE_OF_ANY)
