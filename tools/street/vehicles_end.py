"""Drawings of cars, trucks and buses from a mast ahead of them or behind them. Units are metres."""

from __future__ import annotations

import numpy as np

from tools.street.paint import Canvas, Point, mix
from tools.street.palette import (
    AMBER,
    BUS_PAINTS,
    CAR_PAINTS,
    DARK,
    GLASS,
    HEADLAMP,
    LOAD_PAINTS,
    RIM,
    SKY,
    TAIL_LAMP,
    TYRE,
    WHITE,
    pick,
)
from tools.street.sprites import Artwork, art_canvas, art_from_canvas

__all__ = ["bus_end", "car_end", "truck_end"]


def car_end(rng: np.random.Generator, *, px_per_m: float, ahead: bool) -> Artwork:
    """Return a car as seen from a mast ahead of it (`ahead`) or behind it: roof, screen, bonnet or boot, lamps."""
    width, height = rng.uniform(1.7, 1.95), rng.uniform(1.65, 2.0)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint = pick(rng, CAR_PAINTS)
    deck, sill, roof = height * rng.uniform(0.48, 0.56), height * 0.36, height * 0.84
    _tyres(canvas, width=width, inset=0.1, tyre=0.24)
    canvas.polygon(_tapered(width, 0.12, 0.2, deck, height), mix(paint, WHITE, 0.12))
    canvas.polygon(_tapered(width, 0.16, 0.24, deck, roof), GLASS)
    canvas.polygon([(width * 0.3, deck), (width * 0.36, roof), (width * 0.46, roof), (width * 0.4, deck)], SKY,
                   opacity=0.25)  # fmt: skip
    canvas.polygon(_tapered(width, 0.0, 0.1, sill, deck), mix(paint, WHITE, 0.08))
    canvas.rect(0, 0.2, width, sill, paint)
    canvas.rect(0.06, 0.16, width - 0.06, 0.28, mix(paint, DARK, 0.55))
    _end_lamps(canvas, width=width, low=sill - 0.16, high=sill, reach=0.34, ahead=ahead)
    canvas.rect(width * 0.36, 0.26, width * 0.64, 0.37, DARK if ahead else WHITE)
    return art_from_canvas(canvas, length_m=width, height_m=height, px_per_m=px_per_m)


def truck_end(rng: np.random.Generator, *, px_per_m: float, ahead: bool) -> Artwork:
    """Return a lorry from ahead (cab before a higher box) or from behind (two doors)."""
    width, height = rng.uniform(2.25, 2.55), rng.uniform(3.1, 3.9)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint, load = pick(rng, CAR_PAINTS), pick(rng, LOAD_PAINTS)
    _tyres(canvas, width=width, inset=0.12, tyre=0.42)
    canvas.rect(0, 0.75, width, height, load)
    canvas.rect(0, height * 0.93, width, height, mix(load, WHITE, 0.45))
    if ahead:
        top = height * rng.uniform(0.68, 0.8)
        canvas.polygon(_tapered(width, 0.02, 0.07, 0.4, top), paint)
        canvas.polygon(_tapered(width, 0.08, 0.12, top * 0.58, top * 0.93), GLASS)
        canvas.rect(width * 0.24, 0.62, width * 0.76, top * 0.5, mix(paint, DARK, 0.6))
        canvas.rect(0, top * 0.62, 0.1, top * 0.86, DARK)
        canvas.rect(width - 0.1, top * 0.62, width, top * 0.86, DARK)
    else:
        canvas.rect(0.12, 0.9, width - 0.12, height * 0.9, mix(load, DARK, 0.12))
        canvas.rect(width / 2 - 0.04, 0.85, width / 2 + 0.04, height * 0.92, DARK)
        for x in (width * 0.42, width * 0.56):
            canvas.rect(x, 0.9, x + 0.05, height * 0.9, RIM)
    canvas.rect(0, 0.4, width, 0.72, mix(paint, DARK, 0.5))
    _end_lamps(canvas, width=width, low=0.46, high=0.64, reach=0.36, ahead=ahead)
    return art_from_canvas(canvas, length_m=width, height_m=height, px_per_m=px_per_m)


def bus_end(rng: np.random.Generator, *, px_per_m: float, ahead: bool) -> Artwork:
    """Return a bus from ahead (one tall screen under a lit sign) or from behind (small window, engine grille)."""
    width, height = rng.uniform(2.4, 2.6), rng.uniform(3.1, 3.7)
    canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
    paint = pick(rng, BUS_PAINTS)
    _tyres(canvas, width=width, inset=0.14, tyre=0.36)
    canvas.polygon([(0, 0.3), (0, height * 0.92), (0.15, height), (width - 0.15, height), (width, height * 0.92),
                    (width, 0.3)], paint)  # fmt: skip
    canvas.rect(0.18, height * 0.93, width - 0.18, height - 0.03, mix(paint, WHITE, 0.4))
    sign = (width * 0.2, height * 0.81, width * 0.8, height * 0.9)
    canvas.rect(*sign, DARK)
    if ahead:
        canvas.rect(sign[0] + 0.1, sign[1] + 0.06, sign[2] - 0.1, sign[3] - 0.06, AMBER, light=True)
        canvas.rect(0.1, height * 0.34, width - 0.1, height * 0.79, GLASS)
        canvas.rect(width / 2 - 0.03, height * 0.34, width / 2 + 0.03, height * 0.79, DARK)
        canvas.polygon([(0.3, height * 0.36), (0.6, height * 0.77), (0.9, height * 0.77), (0.6, height * 0.36)], SKY,
                       opacity=0.25)  # fmt: skip
    else:
        canvas.rect(width * 0.14, height * 0.54, width * 0.86, height * 0.78, GLASS)
        for y in np.arange(height * 0.22, height * 0.44, 0.13):
            canvas.rect(width * 0.2, y, width * 0.8, y + 0.06, mix(paint, DARK, 0.7))
    _end_lamps(canvas, width=width, low=0.5, high=0.78, reach=0.3, ahead=ahead)
    return art_from_canvas(canvas, length_m=width, height_m=height, px_per_m=px_per_m)


def _tapered(width: float, low_inset: float, high_inset: float, low: float, high: float) -> list[Point]:
    """Return a symmetric trapezoid; the insets are shares of `width`."""
    a, b = width * low_inset, width * high_inset
    return [(a, low), (b, high), (width - b, high), (width - a, low)]


def _end_lamps(canvas: Canvas, *, width: float, low: float, high: float, reach: float, ahead: bool) -> None:
    colour = HEADLAMP if ahead else TAIL_LAMP
    canvas.rect(0.05, low, reach, high, colour, light=True)
    canvas.rect(width - reach, low, width - 0.05, high, colour, light=True)


def _tyres(canvas: Canvas, *, width: float, inset: float, tyre: float) -> None:
    canvas.rect(inset, 0, inset + tyre, 0.5, TYRE)
    canvas.rect(width - inset - tyre, 0, width - inset, 0.5, TYRE)
