"""Who is in a scene: vehicles on the lanes, people on the pavements, things beside them. Decided by the seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tools.street.layout import Lane, Street
from tools.street.people import person
from tools.street.perspective import Path, Spot, Viewpoint
from tools.street.props import LOW_PROPS, PROPS, Maker
from tools.street.sprites import Artwork
from tools.street.vehicles_end import bus_end, car_end, truck_end
from tools.street.vehicles_side import bus_side, car_side, truck_side

__all__ = ["CAR", "PERSON", "PERIOD_FRAMES", "Actor", "cast_from_street"]

PERIOD_FRAMES = 360
"""Frames after which everything is where it was: 24 s at 15 fps."""

CAR, TRUCK, BUS, PERSON = range(4)
_SHARES = (0.5, 0.25, 0.25)
_ART_PX_PER_M = {True: 56.0, False: 72.0}
_STEP_M = 0.24
_GAP_M = {True: (1.5, 14.0), False: (15.0, 26.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """One object of a scene.

    `class_id`: index into `tools.street.scene.CLASSES`; None for a thing without a label. `arts`: people have one for
    each pose. `path`: how it moves, or a spot where it stands.
    """

    class_id: int | None
    arts: tuple[Artwork, ...]
    path: Path | Spot

    def spot(self, phase: float, camera: Viewpoint) -> Spot | None:
        """Return where it is at `phase` (0 to 1) of the period, or None while it is away."""
        return self.path if isinstance(self.path, Spot) else self.path.at(phase, camera)

    def pose(self, phase: float) -> int:
        """Return which of `arts` is shown at `phase`."""
        if len(self.arts) == 1 or isinstance(self.path, Spot):
            return 0
        return int(self.path.walked_m(phase) / _STEP_M) % len(self.arts)


def cast_from_street(street: Street, seed: int) -> tuple[Actor, ...]:
    """Return everything that stands or moves in this street; the same for the same arguments."""
    rng = np.random.default_rng([seed, 3])
    px_per_m = _ART_PX_PER_M[street.is_side] * street.size.height / 360
    actors: list[Actor] = []
    for lane in street.lanes:
        actors += _vehicles(rng, street, lane, px_per_m)
    for lane in street.pavements:
        actors += _walkers(rng, street, lane, px_per_m)
    return (*actors, *_things(rng, street, px_per_m))


def _vehicles(rng: np.random.Generator, street: Street, lane: Lane, px_per_m: float) -> list[Actor]:
    """Fill one lap of a lane with vehicles that keep their distance."""
    length = lane.visible_m * rng.uniform(1.1, 1.9)
    laps = max(1, round(rng.uniform(130, 210) / length))
    density, at = rng.uniform(0.25, 1.0), rng.uniform(0, 8)
    actors: list[Actor] = []
    end = at + length
    while True:
        class_id = int(rng.choice(3, p=_SHARES))
        art = _vehicle_art(rng, street, lane, class_id, px_per_m)
        taken = art.width_m if street.is_side else 0.0
        if at + taken + _GAP_M[street.is_side][0] > end:
            return actors
        path = _path(street, lane, length=length, offset=(at + taken / 2) % length, laps=laps)
        actors.append(Actor(class_id=class_id, arts=(art,), path=path))
        at += taken + rng.uniform(*_GAP_M[street.is_side]) / density


def _vehicle_art(rng: np.random.Generator, street: Street, lane: Lane, class_id: int, px_per_m: float) -> Artwork:
    if street.is_side:
        art = (car_side, truck_side, bus_side)[class_id](rng, px_per_m=px_per_m)
        return art if lane.direction > 0 else art.mirrored()
    return (car_end, truck_end, bus_end)[class_id](rng, px_per_m=px_per_m, ahead=lane.direction < 0)


def _walkers(rng: np.random.Generator, street: Street, lane: Lane, px_per_m: float) -> list[Actor]:
    """Spread people over one lap of a pavement; all walk the same way, so that nobody hides behind another for long."""
    length = lane.visible_m * rng.uniform(1.0, 1.25)
    at = rng.uniform(0, 6)
    actors: list[Actor] = []
    end = at + length
    gaps = (1.2, rng.uniform(8, 24)) if street.is_side else (3.0, rng.uniform(7, 16))
    while at + gaps[0] < end:
        arts = person(rng, px_per_m=px_per_m)
        mirror = lane.direction < 0 if street.is_side else rng.random() < 0.5
        arts = tuple(art.mirrored() for art in arts) if mirror else arts
        path = _path(street, lane, length=length, offset=at % length, laps=1)
        actors.append(Actor(class_id=PERSON, arts=arts, path=path))
        at += rng.uniform(*gaps)
    return actors


def _path(street: Street, lane: Lane, *, length: float, offset: float, laps: int) -> Path:
    return Path(
        is_across=street.is_side,
        fixed_m=lane.fixed_m,
        from_m=lane.from_m,
        visible_m=lane.visible_m,
        length_m=length,
        direction=lane.direction,
        offset_m=offset,
        laps=laps,
    )


def _things(rng: np.random.Generator, street: Street, px_per_m: float) -> list[Actor]:
    """Place things without a label beside the pavements, tall ones only where they hide nobody."""
    things = []
    for _ in range(rng.integers(4, 13)):
        place, makers = _place_beside(rng, street)
        art = makers[rng.integers(len(makers))](rng, px_per_m * 0.7)
        things.append(Actor(class_id=None, arts=(art,), path=place))
    return things


def _place_beside(rng: np.random.Generator, street: Street) -> tuple[Spot, tuple[Maker, ...]]:
    side = int(rng.integers(2))
    walk, camera = street.pavements[side].fixed_m, street.camera
    if street.is_side:
        away = walk + rng.uniform(0.5, 1.6) if side == 0 else walk - rng.uniform(0.05, 0.4)
        scale = camera.focal_px / away
        across = (rng.uniform(0, street.size.width) - camera.centre_px) / scale
        return camera.spot(across, away), PROPS if side == 0 else LOW_PROPS
    lane = street.pavements[side]
    across = walk + (-1, 1)[side] * rng.uniform(1.2, 4.5)
    near = camera.away_m(street.size.height)
    return camera.spot(across, rng.uniform(near, lane.from_m + lane.visible_m)), PROPS
