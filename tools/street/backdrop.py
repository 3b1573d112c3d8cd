"""The empty street as a picture: sky, houses, grass, pavement, road and markings. Drawn once for a scene."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tools.street.backdrop_long import draw_long
from tools.street.backdrop_side import draw_side
from tools.street.layout import Street
from tools.street.paint import Canvas, cloud
from tools.street.sprites import HEADROOM

__all__ = ["draw_backdrop"]

_OVERSAMPLING = 2


def draw_backdrop(street: Street, seed: int) -> NDArray[np.uint8]:
    """Return the street without anything on it, lit by the scene's daylight.
    uint8 `(H, W, 3)` RGB, between `HEADROOM` and 255 - `HEADROOM`.
    """
    rng = np.random.default_rng([seed, 2])
    size = street.size
    canvas = Canvas(width=size.width * _OVERSAMPLING, height=size.height * _OVERSAMPLING, scale=_OVERSAMPLING)
    (draw_side if street.is_side else draw_long)(rng, canvas, street)
    light = canvas.light[:, :, None]
    gain = np.array(street.gain, np.float32)
    lit = canvas.rgb * (gain * (1 - light) + np.maximum(gain, 0.95) * light)
    shape = (size.height, _OVERSAMPLING, size.width, _OVERSAMPLING, 3)
    picture = lit.reshape(shape).mean(axis=(1, 3)) + _texture(rng, street)
    quantised: NDArray[np.uint8] = np.clip(picture, HEADROOM + 1, 255 - HEADROOM).astype(np.uint8)
    return quantised


def _texture(rng: np.random.Generator, street: Street) -> NDArray[np.float32]:
    """Return float32 `(H, W, 1)`: stains as large as a car, patches, and grain."""
    width, height = street.size.width, street.size.height
    stains = cloud(rng, width=width, height=height, cell=max(2, height // 5))
    patches = cloud(rng, width=width, height=height, cell=max(2, height // 40))
    grain = rng.normal(0, rng.uniform(1.5, 4), (height, width)).astype(np.float32)
    mixed: NDArray[np.float32] = (stains * rng.uniform(3, 9) + patches * rng.uniform(2, 6) + grain)[:, :, None]
    return mixed
