"""The empty street seen along the road."""

from __future__ import annotations

import numpy as np

from tools.street.ground import LIT, MARKING, WINDOW, asphalt, grass, paving, scars
from tools.street.layout import Street
from tools.street.paint import Canvas, Colour, mix

__all__ = ["draw_long"]


def draw_long(rng: np.random.Generator, canvas: Canvas, street: Street) -> None:
    """Paint a skyline, and a road with its pavements that leads to a bridge."""
    width, height, unit = street.size.width, street.size.height, street.size.height / 360
    far = max(lane.from_m + lane.visible_m for lane in street.lanes) + 1.0
    end = street.camera.point(0, far)[1]
    is_park = bool(rng.random() < 0.5)
    canvas.rect(0, 0, width, height, grass(rng) if is_park else mix(paving(rng), (60, 60, 60), 0.25))
    _far_side(rng, canvas, street, end=end)
    slabs = paving(rng)
    for inner, side in zip(street.road_m, (-1, 1), strict=True):
        _strip(canvas, street, inner, inner + side * 3.2, far, slabs)
        _strip(canvas, street, inner + side * 3.2, inner + side * 3.5, far, mix(slabs, (60, 60, 60), 0.5))
        _strip(canvas, street, inner, inner + side * 0.25, far, (206, 204, 196))
    road = asphalt(rng)
    _strip(canvas, street, *street.road_m, far, road)
    # The road is narrowest at its far end: what starts between the edges there lies on it everywhere.
    left, right = (street.camera.point(edge, far)[0] for edge in street.road_m)
    scars(rng, canvas, road, ((left, end), (right - 40 * unit, height)), unit)
    for edge in street.road_m:
        inner = edge + (0.3 if edge == street.road_m[0] else -0.45)
        _strip(canvas, street, inner, inner + 0.15, far, MARKING)
    middle = len(street.divides_m) // 2
    for number, divide in enumerate(street.divides_m):
        _markings(canvas, street, divide, far, is_solid=number == middle and len(street.divides_m) > 1)
    _underpass(canvas, street, end=end)


def _strip(canvas: Canvas, street: Street, left: float, right: float, far: float, colour: Colour) -> None:
    """Paint the ground between two offsets, from below the picture to `far` metres."""
    near = street.camera.away_m(street.size.height) * 0.8
    at = street.camera.point
    canvas.polygon([at(left, near), at(left, far), at(right, far), at(right, near)], colour)


def _markings(canvas: Canvas, street: Street, divide: float, far: float, *, is_solid: bool) -> None:
    near, at = street.camera.away_m(street.size.height) * 0.8, street.camera.point
    step = far if is_solid else 6.0
    for start in np.arange(near, far, step):
        stop = min(far, start + (step if is_solid else 2.6))
        corners = [at(divide - 0.09, start), at(divide - 0.09, stop), at(divide + 0.09, stop), at(divide + 0.09, start)]
        canvas.polygon(corners, MARKING, opacity=0.85)


def _far_side(rng: np.random.Generator, canvas: Canvas, street: Street, *, end: float) -> None:
    """Paint sky and a skyline above the row where the road ends."""
    unit, width = street.size.height / 360, street.size.width
    for step in range(12):
        share = step / 12
        canvas.rect(0, end * share, width, end * (share + 0.1), mix((128, 166, 206), (206, 212, 214), share))
    x = -rng.uniform(0, 60) * unit
    while x < width:
        front, top = x + rng.uniform(30, 110) * unit, end * rng.uniform(0.05, 0.75)
        wall = mix((140, 136, 134), (88, 92, 102), rng.uniform(0, 1))
        canvas.rect(x, top, front, end + 2 * unit, wall)
        for y in np.arange(top + 6 * unit, end - 8 * unit, 11 * unit):
            for left in np.arange(x + 5 * unit, front - 8 * unit, 11 * unit):
                is_lit = street.is_night and rng.random() < 0.4
                canvas.rect(left, y, left + 6 * unit, y + 6 * unit, LIT if is_lit else WINDOW, light=is_lit)
        x = front


def _underpass(canvas: Canvas, street: Street, *, end: float) -> None:
    """Paint the bridge that the road comes out from, so that vehicles do not appear out of nothing."""
    far = street.camera.away_m(end)
    scale, unit = street.camera.focal_px / far, street.size.height / 360
    left, right = (street.camera.point(edge, far)[0] for edge in (street.road_m[0] - 3.5, street.road_m[1] + 3.5))
    top = end - 4.8 * scale
    canvas.rect(left, top, right, end + 1, (26, 27, 30))
    canvas.rect(0, top - 1.6 * scale, street.size.width, top, (134, 132, 126))
    canvas.rect(0, top - 1.9 * scale, street.size.width, top - 1.6 * scale, (168, 166, 160))
    for x in (left - 1.2 * scale, right, street.camera.point(sum(street.road_m) / 2, far)[0] - 0.4 * scale):
        canvas.rect(x, top, x + (1.2 if x != right else 1.0) * scale * 0.7, end + unit, (120, 118, 112))
