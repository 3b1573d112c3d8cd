"""Drawings of things that are no road users and carry no label: trees, lamps, signs, boxes, bins. Units are metres."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.street.paint import Canvas, Colour, mix
from tools.street.sprites import Artwork, art_canvas, art_from_canvas

__all__ = ["LOW_PROPS", "PROPS", "Maker"]

Maker = Callable[[np.random.Generator, float], Artwork]

_TRUNK: Colour = (88, 66, 48)
_STEEL: Colour = (104, 108, 112)
_LAMP: Colour = (255, 238, 190)


def _tree(rng: np.random.Generator, px_per_m: float) -> Artwork:
    height = rng.uniform(3.4, 5.2)
    crown = height * rng.uniform(0.26, 0.36)
    canvas = art_canvas(length_m=2 * crown, height_m=height, px_per_m=px_per_m)
    leaf: Colour = (float(rng.uniform(50, 96)), float(rng.uniform(92, 130)), float(rng.uniform(40, 66)))
    canvas.rect(crown - 0.13, 0, crown + 0.13, height * 0.6, _TRUNK)
    for _ in range(14):
        x, y = rng.normal(crown, crown * 0.34), rng.normal(height - crown, crown * 0.34)
        radius = crown * rng.uniform(0.3, 0.48)
        x, y = np.clip(x, radius, 2 * crown - radius), np.clip(y, radius, height - radius)
        canvas.ellipse(x, y, radius, radius, mix(leaf, (20, 40, 18), rng.uniform(0, 0.45)))
    return _finish(canvas, 2 * crown, height, px_per_m)


def _lamp(rng: np.random.Generator, px_per_m: float) -> Artwork:
    height, width = rng.uniform(4.2, 5.6), 0.98
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    canvas.rect(0.42, 0, 0.56, height, _STEEL)
    canvas.rect(0.42, height - 0.14, width, height, _STEEL)
    canvas.rect(width - 0.4, height - 0.24, width, height - 0.12, _LAMP, light=True)
    return _finish(canvas, width, height, px_per_m)


def _sign(rng: np.random.Generator, px_per_m: float) -> Artwork:
    height, width = rng.uniform(2.0, 2.7), 0.8
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    canvas.rect(0.36, 0, 0.44, height, _STEEL)
    colour: Colour = ((186, 34, 34), (30, 80, 160), (226, 186, 40))[rng.integers(3)]
    if rng.random() < 0.5:
        canvas.ellipse(0.4, height - 0.4, 0.4, 0.4, colour)
        canvas.ellipse(0.4, height - 0.4, 0.28, 0.28, (236, 236, 232))
    else:
        canvas.polygon([(0.0, height - 0.75), (0.4, height), (0.8, height - 0.75)], colour)
        canvas.polygon([(0.2, height - 0.66), (0.4, height - 0.25), (0.6, height - 0.66)], (236, 236, 232))
    return _finish(canvas, width, height, px_per_m)


def _box(rng: np.random.Generator, px_per_m: float) -> Artwork:
    """A skip, crate or container: the size and paint of a vehicle, but neither wheels nor windows."""
    width, height = rng.uniform(1.2, 4.6), rng.uniform(0.9, 2.2)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint: Colour = ((170, 90, 40), (50, 90, 120), (130, 130, 126), (70, 110, 70), (190, 170, 60))[rng.integers(5)]
    canvas.rect(0, 0, width, height, paint)
    canvas.rect(0, height * 0.88, width, height, mix(paint, (240, 240, 236), 0.35))
    for x in np.arange(0.2, width, rng.uniform(0.3, 0.9)):
        canvas.rect(x, 0.04, x + 0.06, height * 0.86, mix(paint, (20, 20, 20), 0.4))
    return _finish(canvas, width, height, px_per_m)


def _bin(rng: np.random.Generator, px_per_m: float) -> Artwork:
    width, height = rng.uniform(0.4, 0.7), rng.uniform(0.8, 1.15)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint: Colour = ((60, 84, 64), (80, 82, 86), (44, 70, 110))[rng.integers(3)]
    canvas.polygon([(0.06, 0), (0, height * 0.86), (width, height * 0.86), (width - 0.06, 0)], paint)
    canvas.rect(0, height * 0.86, width, height, mix(paint, (10, 10, 10), 0.5))
    return _finish(canvas, width, height, px_per_m)


def _bollard(rng: np.random.Generator, px_per_m: float) -> Artwork:
    height = rng.uniform(0.8, 1.2)
    canvas = art_canvas(length_m=0.22, height_m=height, px_per_m=px_per_m)
    canvas.rect(0, 0, 0.22, height, _STEEL)
    canvas.rect(0, height * 0.7, 0.22, height * 0.86, (224, 222, 216))
    return _finish(canvas, 0.22, height, px_per_m)


def _cone(rng: np.random.Generator, px_per_m: float) -> Artwork:
    height = rng.uniform(0.6, 0.8)
    canvas = art_canvas(length_m=0.5, height_m=height, px_per_m=px_per_m)
    canvas.rect(0, 0, 0.5, 0.07, (210, 84, 30))
    canvas.polygon([(0.08, 0.05), (0.22, height), (0.28, height), (0.42, 0.05)], (230, 96, 36))
    canvas.polygon([(0.15, height * 0.4), (0.18, height * 0.6), (0.32, height * 0.6), (0.35, height * 0.4)],
                   (238, 236, 230))  # fmt: skip
    return _finish(canvas, 0.5, height, px_per_m)


def _post_box(rng: np.random.Generator, px_per_m: float) -> Artwork:
    """A pillar of about a person's size."""
    width, height = rng.uniform(0.45, 0.6), rng.uniform(1.3, 1.7)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint: Colour = ((180, 30, 30), (220, 180, 40), (60, 70, 78))[rng.integers(3)]
    canvas.rect(0, 0, width, height - 0.1, paint)
    canvas.ellipse(width / 2, height - 0.16, width / 2, 0.16, mix(paint, (255, 255, 255), 0.15))
    canvas.rect(width * 0.2, height * 0.72, width * 0.8, height * 0.77, (24, 24, 24))
    return _finish(canvas, width, height, px_per_m)


def _bush(rng: np.random.Generator, px_per_m: float) -> Artwork:
    width, height = rng.uniform(1.0, 2.4), rng.uniform(0.7, 1.2)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    for _ in range(9):
        radius = min(height * rng.uniform(0.3, 0.5), width / 2)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius * 0.6, height - radius)
        canvas.ellipse(x, y, radius, radius, mix((66, 112, 52), (22, 48, 22), rng.uniform(0, 0.6)))
    return _finish(canvas, width, height, px_per_m)


def _finish(canvas: Canvas, width: float, height: float, px_per_m: float) -> Artwork:
    return art_from_canvas(canvas, length_m=width, height_m=height, px_per_m=px_per_m)


PROPS: tuple[Maker, ...] = (_tree, _lamp, _sign, _box, _bin, _bollard, _cone, _post_box, _bush)
LOW_PROPS: tuple[Maker, ...] = (_sign, _bin, _bollard, _cone, _post_box)
