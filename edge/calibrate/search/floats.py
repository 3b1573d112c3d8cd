"""Layers that are worth their time in float: each is tried alone, then the best of them together."""

from __future__ import annotations

from collections.abc import Sequence

from edge.calibrate.search.bench import Bench
from edge.calibrate.search.choice import Choice, Layer, Measured

__all__ = ["with_better_floats"]

_SMALLEST_GAIN = 0.005  # of the error now: less is noise
_SHARE_OF_ANY = 0.002  # switching between INT8 and float costs something even where a layer does not
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def with_better_floats(bench: Bench, now: Measured) -> Measured:
    """Return `now` with more layers in float, or as it is."""
    layers = bench.int8_layers(now.choice)
    alone = bench.measured([now.choice.with_floats([layer], "") for layer in layers])
    gains = {layer: now.error - tried.error for layer, tried in zip(layers, alone, strict=True)}
    useful = [layer for layer in layers if gains[layer] > _SMALLEST_GAIN * now.error]
    useful.sort(key=lambda layer: -gains[layer] / (layer.mac_share + _SHARE_OF_ANY))
    grown = _grown(bench, now.choice, useful, {layer: f"{gains[layer] / now.error:.1%} less error" for layer in useful})
    return bench.best([now.choice, *(grown[size - 1] for size in _SIZES if size <= len(grown))])


def _grown(bench: Bench, choice: Choice, layers: Sequence[Layer], reasons: dict[Layer, str]) -> list[Choice]:
    """Return `choice` with one more layer each time, leaving out those for which there is no room."""
    grown = []
    for layer in layers:
        larger = choice.with_floats([layer], reasons[layer])
        if bench.is_allowed(larger):
            choice = larger
            grown.append(choice)
    return grown
