"""The empty street seen from a house across it."""

from __future__ import annotations

import numpy as np

from tools.street.ground import LIT, MARKING, WINDOW, asphalt, grass, paving, scars
from tools.street.layout import Street
from tools.street.paint import Canvas, Colour, mix

__all__ = ["draw_side"]


def draw_side(rng: np.random.Generator, canvas: Canvas, street: Street) -> None:
    """Paint houses or a park, two pavements and a road that crosses the picture."""
    width, height, unit = street.size.width, street.size.height, street.size.height / 360
    rows = [street.camera.point(0, away)[1] for away in street.road_m]
    wall = street.camera.point(0, street.pavements[0].fixed_m)[1] - rng.uniform(10, 18) * unit
    canvas.rect(0, 0, width, height, paving(rng))
    if rng.random() < 0.6:
        _houses(rng, canvas, street, base=wall)
    else:
        _park(rng, canvas, street, base=wall)
    road = asphalt(rng)
    canvas.rect(0, rows[0], width, rows[1], road)
    for row, depth in ((rows[0], -4 * unit), (rows[1], 5 * unit)):
        canvas.rect(0, row, width, row + depth, mix(paving(rng), (235, 235, 230), 0.4))
    for row, inset in ((rows[0], 6), (rows[1], -8)):
        canvas.rect(0, row + inset * unit, width, row + (inset + 2) * unit, MARKING, opacity=0.8)
    for number, away in enumerate(street.divides_m):
        row, scale = street.camera.point(0, away)[1], street.camera.focal_px / away
        is_solid = number == len(street.divides_m) // 2 and rng.random() < 0.4
        step = width if is_solid else 5 * scale
        for x in np.arange(-rng.uniform(0, step), width, step):
            canvas.rect(x, row, x + (step if is_solid else 2.2 * scale), row + 3 * unit, MARKING, opacity=0.85)
    scars(rng, canvas, road, ((0, rows[0]), (width, rows[1])), unit)
    if rng.random() < 0.35:
        _stripes(rng, canvas, rows, width, unit)


def _stripes(rng: np.random.Generator, canvas: Canvas, rows: list[float], width: int, unit: float) -> None:
    """Paint a pedestrian crossing over the side view's road."""
    left = rng.uniform(0.1, 0.8) * width
    for row in np.arange(rows[0] + 10 * unit, rows[1] - 10 * unit, 17 * unit):
        canvas.rect(left, row, left + 62 * unit, row + 8 * unit, MARKING, opacity=0.8)


def _houses(rng: np.random.Generator, canvas: Canvas, street: Street, *, base: float) -> None:
    """Paint a row of house fronts that stands on row `base`."""
    unit, x = street.size.height / 360, float(-rng.uniform(0, 80))
    while x < street.size.width:
        front = x + rng.uniform(70, 190) * unit
        shade = rng.uniform(0, 0.35)
        wall: Colour = ((176, 140, 116), (196, 188, 172), (146, 150, 158), (172, 108, 90))[rng.integers(4)]
        wall = mix(wall, (60, 60, 66), shade)
        canvas.rect(x, 0, front, base, wall)
        canvas.rect(x, base - 6 * unit, front, base, mix(wall, (40, 40, 40), 0.5))
        _windows(rng, canvas, street, (x, front, base))
        x = front
    canvas.rect(0, base, street.size.width, base + 2 * unit, (70, 70, 72))


def _windows(rng: np.random.Generator, canvas: Canvas, street: Street, front: tuple[float, float, float]) -> None:
    left, right, base = front
    unit = street.size.height / 360
    wide, high = rng.uniform(11, 20) * unit, rng.uniform(18, 26) * unit
    pitch = wide * rng.uniform(1.5, 2.1)
    for y in np.arange(base - 18 * unit - high, -high, -high * 1.7):
        for x in np.arange(left + wide * 0.5, right - wide, pitch):
            is_lit = street.is_night and rng.random() < 0.4
            canvas.rect(x - unit, y - unit, x + wide + unit, y + high + unit, (206, 204, 198))
            canvas.rect(x, y, x + wide, y + high, LIT if is_lit else WINDOW, light=is_lit)
    if rng.random() < 0.7:
        x = rng.uniform(left, max(left + 1, right - 24 * unit))
        canvas.rect(x, base - 34 * unit, x + 20 * unit, base, (74, 52, 40))


def _park(rng: np.random.Generator, canvas: Canvas, street: Street, *, base: float) -> None:
    """Paint grass with bushes and trees seen from above, behind row `base`."""
    unit, lawn = street.size.height / 360, grass(rng)
    canvas.rect(0, 0, street.size.width, base, lawn)
    for _ in range(rng.integers(8, 22)):
        x, y, radius = rng.uniform(0, street.size.width), rng.uniform(0, base * 0.8), rng.uniform(8, 26) * unit
        canvas.ellipse(x + radius * 0.3, y + radius * 0.7, radius, radius * 0.5, (30, 46, 28), opacity=0.5)
        canvas.ellipse(x, y, radius, radius * 0.85, mix(lawn, (30, 70, 30), rng.uniform(0.2, 0.8)))
        canvas.ellipse(x - radius * 0.2, y - radius * 0.25, radius * 0.6, radius * 0.5,
                       mix(lawn, (60, 120, 50), 0.5))  # fmt: skip
    canvas.rect(0, base - 3 * unit, street.size.width, base, (110, 104, 96))
