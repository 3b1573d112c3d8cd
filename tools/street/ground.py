"""Colours and blemishes of the ground that every street shares."""

from __future__ import annotations

import numpy as np

from tools.street.paint import Canvas, Colour, Point, mix

__all__ = ["LIT", "MARKING", "WINDOW", "asphalt", "grass", "paving", "scars"]

MARKING: Colour = (214, 212, 200)
WINDOW: Colour = (62, 74, 88)
LIT: Colour = (250, 214, 140)


def asphalt(rng: np.random.Generator) -> Colour:
    grey = rng.uniform(66, 124)
    return grey + rng.uniform(-4, 4), grey, grey + rng.uniform(-3, 8)


def paving(rng: np.random.Generator) -> Colour:
    base: Colour = ((168, 164, 156), (150, 148, 146), (176, 158, 138))[rng.integers(3)]
    return mix(base, (90, 90, 90), rng.uniform(0, 0.3))


def grass(rng: np.random.Generator) -> Colour:
    return float(rng.uniform(78, 118)), float(rng.uniform(112, 142)), float(rng.uniform(58, 84))


def scars(rng: np.random.Generator, canvas: Canvas, road: Colour, area: tuple[Point, Point], unit: float) -> None:
    """Paint tar patches, drain covers and oil stains; `area` is the upper left and the lower right corner for them."""
    (left, top), (right, bottom) = area
    for _ in range(rng.integers(2, 7)):
        x, y = rng.uniform(left, right), rng.uniform(top + 8 * unit, bottom - 18 * unit)
        if rng.random() < 0.5:
            canvas.rect(x, y, x + rng.uniform(20, 90) * unit, y + rng.uniform(5, 14) * unit,
                        mix(road, (20, 20, 22), rng.uniform(0.15, 0.4)))  # fmt: skip
        else:
            canvas.ellipse(x, y, rng.uniform(5, 11) * unit, rng.uniform(2, 4) * unit, (48, 48, 50), opacity=0.7)
