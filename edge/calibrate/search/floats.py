"""Layers that are worth their time in float: each is tried alone, then the promising ones are added one by one."""

from __future__ import annotations

from collections.abc import Sequence

from edge.calibrate.search.bench import Bench
from edge.calibrate.search.choice import Layer, Measured

__all__ = ["filled_up", "with_better_floats"]

_SMALLEST_GAIN = 0.005  # of the error now: less is noise
_SHARE_OF_ANY = 0.002  # switching between INT8 and float costs something even where a layer does not
_PROMISING = 6  # by what they gain, and as many by what they gain for what they cost
_MOST = 12


def with_better_floats(bench: Bench, now: Measured) -> Measured:
    """Return `now` with more layers in float, or as it is."""
    layers = bench.int8_layers(now.choice)
    alone = bench.measured([now.choice.with_floats([layer], "") for layer in layers])
    gains = {layer: 1 - tried.error / now.error for layer, tried in zip(layers, alone, strict=True) if now.error}
    bench.gains = {layer: gain for layer, gain in gains.items() if gain > 0}
    waiting = _promising({layer: gain for layer, gain in gains.items() if gain > _SMALLEST_GAIN})
    for _ in range(_MOST):
        added = [now.choice.with_floats([layer], f"{gains[layer]:.1%} less error") for layer in waiting]
        allowed = [choice for choice in added if bench.is_allowed(choice)]
        if not allowed:
            break
        better = bench.best(allowed)
        if better.cost > (1 - _SMALLEST_GAIN) * now.cost:
            break
        now = better
        waiting = [layer for layer in waiting if layer.name not in now.choice.floats]
    return now


def filled_up(bench: Bench, now: Measured) -> Measured:
    """Return `now` with as many useful layers in float as the limits allow, by what they gained alone."""
    choice = now.choice
    for layer in sorted(bench.gains, key=lambda layer: -_worth(layer, bench.gains[layer])):
        larger = choice.with_floats([layer], f"{bench.gains[layer]:.1%} less error, needed for the promise")
        choice = larger if bench.is_allowed(larger) else choice
    return bench.best([now.choice, choice])


def _worth(layer: Layer, gain: float) -> float:
    return gain / (layer.mac_share + _SHARE_OF_ANY)


def _promising(gains: dict[Layer, float]) -> Sequence[Layer]:
    by_gain = sorted(gains, key=lambda layer: -gains[layer])
    by_worth = sorted(gains, key=lambda layer: -_worth(layer, gains[layer]))
    return list(dict.fromkeys((*by_gain[:_PROMISING], *by_worth[:_PROMISING])))
