"""Layers that alone carry a large part of the error: a part of the model that helps in float is halved until found."""

from __future__ import annotations

from collections.abc import Sequence

from edge.calibrate.search.choice import Int8Choice, Layer
from edge.calibrate.search.measurements import Measurements

__all__ = ["without_outliers"]

_PARTS = 12
_LARGE = 0.2  # of the error now: far more than chance does
_MOST = 4  # outliers; a model with more of them is not mended layer by layer


def without_outliers(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with the outliers in float, as far as the limits allow."""
    for _ in range(_MOST):
        layer = _worst(measurements, now, measurements.int8_layers(now), _PARTS)
        if layer is None:
            return now
        mended = now.with_floats([layer], "carries a large part of the error alone")
        before, after = measurements.explored([now, mended])
        if not measurements.is_allowed(mended) or after.gain_over(before) <= _LARGE:
            return now
        now = mended
    return now


def _worst(measurements: Measurements, now: Int8Choice, layers: Sequence[Layer], parts: int) -> Layer | None:
    """Return the layer that is found by always taking the part whose return to float helps most."""
    while len(layers) > 1:
        size = -(-len(layers) // parts)
        groups = [layers[first : first + size] for first in range(0, len(layers), size)]
        before, *tried = measurements.glanced([now, *(now.with_floats(group, "") for group in groups)])
        index = min(range(len(groups)), key=lambda i: tried[i].error)
        if tried[index].gain_over(before) <= _LARGE:
            return None
        layers = groups[index]
    return layers[0] if layers else None
