"""Drawings of cars, trucks and buses from the side, facing right. Units are metres."""

from __future__ import annotations

import numpy as np

from tools.street.paint import Canvas, Colour, Point, mix
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

__all__ = ["bus_side", "car_side", "truck_side"]


def car_side(rng: np.random.Generator, *, px_per_m: float) -> Artwork:
    """Return a saloon, hatchback, estate or off-roader."""
    length, height = rng.uniform(3.7, 4.8), rng.uniform(1.4, 1.75)
    canvas = art_canvas(length_m=length, height_m=height, px_per_m=px_per_m)
    paint = pick(rng, CAR_PAINTS)
    belt, tail = height * rng.uniform(0.54, 0.62), rng.uniform(0.02, 0.16)
    roof = [(length * (tail + 0.1), height), (length * 0.6, height)]
    cabin = [(length * tail, belt), *roof, (length * 0.76, belt)]
    canvas.polygon(cabin, mix(paint, WHITE, 0.06))
    canvas.polygon(_hull(length, belt, tail), paint)
    canvas.rect(0.04, 0.24, length - 0.04, 0.36, mix(paint, DARK, 0.6))
    _car_windows(canvas, cabin, paint=paint, belt=belt)
    canvas.rect(length * 0.46, belt * 0.76, length * 0.5, belt * 0.82, mix(paint, DARK, 0.5))
    canvas.ellipse(length - 0.12, belt * 0.74, 0.14, 0.09, HEADLAMP, light=True)
    canvas.rect(0.02, belt * 0.7, 0.16, belt * 0.88, TAIL_LAMP, light=True)
    _wheels(canvas, [length * 0.19, length * 0.8], radius=0.33)
    return art_from_canvas(canvas, length_m=length, height_m=height, px_per_m=px_per_m)


def _hull(length: float, belt: float, tail: float) -> list[Point]:
    """Return the outline of a car's lower body, clockwise from the rear bumper."""
    back = belt * (0.9 if tail > 0.08 else 1.0)
    return [
        (0.0, 0.3), (0.02, back), (length * tail, belt), (length * 0.76, belt), (length * 0.97, belt * 0.82),
        (length, belt * 0.6), (length, 0.26), (0.1, 0.24),
    ]  # fmt: skip


def _car_windows(canvas: Canvas, cabin: list[Point], *, paint: Colour, belt: float) -> None:
    middle = sum(x for x, _ in cabin) / 4
    panes = [(middle + (x - middle) * 0.88, belt + (y - belt) * 0.86 + 0.02) for x, y in cabin]
    canvas.polygon(panes, GLASS)
    low, high = panes[0], panes[1]
    canvas.polygon([(middle, low[1]), (middle + 0.3, high[1]), (middle + 0.6, high[1]), (middle + 0.3, low[1])], SKY,
                   opacity=0.25)  # fmt: skip
    canvas.rect(middle - 0.12, low[1], middle - 0.03, high[1], paint)


def truck_side(rng: np.random.Generator, *, px_per_m: float) -> Artwork:
    """Return a lorry: a cab, a gap, and a box, a tank or a loaded flat bed."""
    length, height = rng.uniform(5.6, 8.6), rng.uniform(2.6, 3.4)
    canvas = art_canvas(length_m=length, height_m=height, px_per_m=px_per_m)
    cab_from = length - rng.uniform(1.7, 2.1)
    canvas.rect(0.1, 0.55, length - 0.5, 0.85, DARK)
    _load(rng, canvas, end=cab_from - 0.14, height=height)
    _cab(canvas, paint=pick(rng, CAR_PAINTS), start=cab_from, end=length, height=height * rng.uniform(0.78, 0.92))
    rear = [1.0, 1.95] if length > 7 else [1.2]
    _wheels(canvas, [*rear, length - 1.1], radius=0.46)
    return art_from_canvas(canvas, length_m=length, height_m=height, px_per_m=px_per_m)


def _load(rng: np.random.Generator, canvas: Canvas, *, end: float, height: float) -> None:
    paint, kind = pick(rng, LOAD_PAINTS), rng.random()
    if kind < 0.62:
        canvas.rect(0, 0.8, end, height, paint)
        canvas.rect(0, height - 0.14, end, height, mix(paint, WHITE, 0.4))
        for x in np.arange(0.0, end, 0.62 if rng.random() < 0.5 else end * 0.98):
            canvas.rect(x, 0.8, x + 0.05, height, mix(paint, DARK, 0.35))
        if rng.random() < 0.5:
            canvas.rect(end * 0.22, height * 0.5, end * 0.78, height * 0.72, pick(rng, LOAD_PAINTS))
    elif kind < 0.8:
        canvas.rect(0, 0.75, end, 1.0, DARK)
        canvas.ellipse(end / 2, height * 0.6, end / 2, height * 0.33, paint)
        canvas.rect(end * 0.1, height * 0.7, end * 0.9, height * 0.78, mix(paint, WHITE, 0.6))
    else:
        canvas.rect(0, 0.75, end, 1.25, mix(paint, DARK, 0.3))
        for x in np.arange(0.1, end - 0.9, 1.1):
            top = height * rng.uniform(0.55, 0.95)
            canvas.rect(x, 1.25, x + 1.0, top, mix((150, 112, 70), DARK, rng.uniform(0, 0.4)))


def _cab(canvas: Canvas, *, paint: Colour, start: float, end: float, height: float) -> None:
    canvas.polygon(
        [(start, 0.45), (start, height), (end - 0.5, height), (end - 0.05, height * 0.55), (end, 0.4)], paint
    )
    canvas.polygon(
        [(start + 0.45, height * 0.58), (start + 0.45, height * 0.9), (end - 0.55, height * 0.9),
         (end - 0.2, height * 0.58)],
        GLASS,
    )  # fmt: skip
    canvas.rect(start + 0.3, height * 0.44, start + 0.55, height * 0.47, DARK)
    canvas.rect(start, 0.4, end, 0.6, mix(paint, DARK, 0.6))
    canvas.ellipse(end - 0.12, 0.75, 0.13, 0.13, HEADLAMP, light=True)


def bus_side(rng: np.random.Generator, *, px_per_m: float) -> Artwork:
    """Return a city bus or coach: a row of windows, doors and one body."""
    length, height = rng.uniform(7.6, 11.0), rng.uniform(2.8, 3.3)
    canvas = art_canvas(length_m=length, height_m=height, px_per_m=px_per_m)
    paint, lower = pick(rng, BUS_PAINTS), pick(rng, BUS_PAINTS)
    canvas.polygon([(0, 0.35), (0, height - 0.1), (0.15, height), (length - 0.3, height), (length, height * 0.45),
                    (length, 0.35)], paint)  # fmt: skip
    if rng.random() < 0.6:
        canvas.rect(0, 0.35, length, height * rng.uniform(0.25, 0.42), lower)
    canvas.rect(0.2, height - 0.22, length * 0.9, height - 0.04, mix(paint, WHITE, 0.35))
    low, high, pitch = height * 0.47, height * 0.84, rng.uniform(1.05, 1.5)
    lit = bool(rng.random() < 0.3)
    for x in np.arange(0.3, length - 1.0, pitch):
        canvas.rect(x, low, min(x + pitch - 0.13, length - 0.75), high, SKY if lit else GLASS)
    for x in (length - 1.75, length * 0.45):
        canvas.rect(x, 0.42, x + 0.95, high, mix(GLASS, DARK, 0.3))
        canvas.rect(x + 0.44, 0.42, x + 0.5, high, mix(paint, DARK, 0.2))
    canvas.polygon([(length - 0.62, low), (length - 0.62, high), (length - 0.28, high), (length - 0.1, low)], GLASS)
    canvas.rect(length * 0.62, height - 0.34, length * 0.76, height - 0.2, AMBER, light=True)
    canvas.rect(length - 0.2, 0.6, length - 0.02, 0.85, HEADLAMP, light=True)
    canvas.rect(0.0, 0.7, 0.12, 1.1, TAIL_LAMP, light=True)
    _wheels(canvas, [length * 0.22, length * 0.76], radius=0.46)
    return art_from_canvas(canvas, length_m=length, height_m=height, px_per_m=px_per_m)


def _wheels(canvas: Canvas, centres: list[float], *, radius: float) -> None:
    for x in centres:
        canvas.ellipse(x, radius, radius * 1.12, radius * 1.12, DARK)
        canvas.ellipse(x, radius, radius, radius, TYRE)
        canvas.ellipse(x, radius, radius * 0.55, radius * 0.55, RIM)
