"""The street in front of one camera: where its road, lanes and pavements lie. Decided by the seed, not drawn here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge.types import ImageSize
from tools.street.perspective import Viewpoint

__all__ = ["Lane", "Street", "street_from_seed"]

_SIDE_SHARE = 0.5
_ROWS = {2: (124.0, (206.0, 286.0), 346.0), 3: (122.0, (186.0, 247.0, 308.0), 348.0)}
"""Of a picture 360 rows high: far walkers, lanes, near walkers. Far enough apart that no car hides behind a bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A line that road users follow, along one ground axis.

    Attributes:
        fixed_m: Distance from the camera (side view) or offset to the right of it (view along the road).
        from_m, visible_m: Where on the other axis something gets into the world, and how far from there it stays.
        direction: 1 or -1 along that axis.
    """

    fixed_m: float
    from_m: float
    visible_m: float
    direction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Street:
    """One camera and the street that it watches.

    Attributes:
        is_side: The road crosses the picture; else it leads away from the camera.
        road_m, divides_m: Both edges of the road, and lane markings, on the axis of `Lane.fixed_m`.
        gain: How much of red, green and blue the daylight leaves.
        is_night: Lamps and windows are lit.
    """

    size: ImageSize
    is_side: bool
    camera: Viewpoint
    lanes: tuple[Lane, ...]
    pavements: tuple[Lane, ...]
    road_m: tuple[float, float]
    divides_m: tuple[float, ...]
    gain: tuple[float, float, float]
    is_night: bool


def street_from_seed(seed: int, size: ImageSize) -> Street:
    """Return the same for the same arguments."""
    rng = np.random.default_rng([seed, 1])
    gain, is_night = _daylight(rng)
    make = _side_street if rng.random() < _SIDE_SHARE else _long_street
    return make(rng, size, gain, is_night)


def _daylight(rng: np.random.Generator) -> tuple[tuple[float, float, float], bool]:
    """Return the colour of the light: day, overcast, low sun or night."""
    kind = rng.choice(4, p=(0.42, 0.24, 0.18, 0.16))
    tint = ((1.03, 1.0, 0.96), (0.84, 0.87, 0.9), (0.95, 0.79, 0.64), (0.46, 0.5, 0.62))[kind]
    level = rng.uniform(0.86, 1.08)
    return (tint[0] * level, tint[1] * level, tint[2] * level), bool(kind == 3)


def _side_street(rng: np.random.Generator, size: ImageSize, gain: tuple[float, float, float], is_night: bool) -> Street:
    unit, count = size.height / 360, int(rng.integers(2, 4))
    far, rows, near = _ROWS[count]
    wide = 16.5 if count == 2 else 20.0
    camera = Viewpoint(
        focal_px=500 * unit,
        height_m=wide * rng.uniform(0.96, 1.06),
        horizon_px=(-6.2 * wide - 40) * unit,
        centre_px=size.width * rng.uniform(0.4, 0.6),
    )
    shift, first = rng.uniform(-5, 5), int(rng.choice((-1, 1)))
    away = [camera.away_m((row + shift) * unit) for row in rows]
    directions = [first if place < len(rows) / 2 else -first for place in range(len(rows))]
    gap = rows[1] - rows[0]
    edges = (rows[0] + shift - 0.66 * gap + 6, rows[-1] + shift + 16)
    divides = tuple(camera.away_m((row + shift + 0.16 * gap) * unit) for row in rows[:-1])
    walks = [camera.away_m((row + shift * 0.5) * unit) for row in (far, near)]
    return Street(
        size=size,
        is_side=True,
        camera=camera,
        lanes=tuple(_across(camera, size, z, turn, 6.5) for z, turn in zip(away, directions, strict=True)),
        pavements=tuple(_across(camera, size, z, int(rng.choice((-1, 1))), 1.0) for z in walks),
        road_m=(camera.away_m(edges[0] * unit), camera.away_m(edges[1] * unit)),
        divides_m=divides,
        gain=gain,
        is_night=is_night,
    )


def _across(camera: Viewpoint, size: ImageSize, away_m: float, direction: int, margin_m: float) -> Lane:
    scale = camera.focal_px / away_m
    return Lane(
        fixed_m=away_m,
        from_m=-camera.centre_px / scale - margin_m,
        visible_m=size.width / scale + 2 * margin_m,
        direction=direction,
    )


def _long_street(rng: np.random.Generator, size: ImageSize, gain: tuple[float, float, float], is_night: bool) -> Street:
    unit, count, width = size.height / 360, int(rng.integers(2, 5)), rng.uniform(3.6, 4.1)
    camera = Viewpoint(
        focal_px=rng.uniform(500, 580) * unit,
        height_m=rng.uniform(8.8, 11),
        horizon_px=rng.uniform(-5, 40) * unit,
        centre_px=size.width * rng.uniform(0.44, 0.56),
    )
    middle = rng.uniform(-2.5, 2.5)
    left = middle - count * width / 2
    divides = tuple(left + width * place for place in range(1, count))
    towards = int(rng.choice((-1, 1)))
    near = camera.away_m(size.height)
    lanes = [
        Lane(
            fixed_m=left + width * (place + 0.5),
            from_m=near * 0.55,
            visible_m=camera.focal_px / (11.5 * unit) - near * 0.55,
            direction=towards if place < count / 2 else -towards,
        )
        for place in range(count)
    ]
    edges = (left - 0.4, left + count * width + 0.4)
    sides = [
        Lane(
            fixed_m=edge + side * rng.uniform(1.3, 2.0),
            from_m=near * 0.75,
            visible_m=camera.focal_px / (15 * unit) - near * 0.75,
            direction=int(rng.choice((-1, 1))),
        )
        for edge, side in zip(edges, (-1, 1), strict=True)
    ]
    return Street(
        size=size,
        is_side=False,
        camera=camera,
        lanes=tuple(lanes),
        pavements=tuple(sides),
        road_m=edges,
        divides_m=divides,
        gain=gain,
        is_night=is_night,
    )
