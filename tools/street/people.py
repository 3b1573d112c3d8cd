"""Drawings of people walking: a head, a body, swinging arms and legs, in a few poses. Units are metres."""

from __future__ import annotations

import math

import numpy as np

from tools.street.paint import Canvas, Colour, mix
from tools.street.sprites import Artwork, art_canvas, art_from_canvas

__all__ = ["POSES", "person"]

POSES = 6
"""Drawings in one double step."""

_SKINS: tuple[Colour, ...] = ((226, 184, 152), (196, 146, 110), (142, 98, 70), (92, 62, 46))
_HAIRS: tuple[Colour, ...] = ((30, 26, 24), (76, 52, 34), (170, 134, 84), (150, 148, 146), (160, 40, 40))
_CLOTHES: tuple[Colour, ...] = (
    (44, 60, 100), (160, 40, 46), (228, 226, 220), (46, 46, 50), (90, 124, 84), (210, 168, 60), (124, 84, 130),
    (80, 140, 170), (120, 92, 68),
)  # fmt: skip


def person(rng: np.random.Generator, *, px_per_m: float) -> tuple[Artwork, ...]:
    """Return one walker in `POSES` poses, all of one size and facing right."""
    height, build = rng.uniform(1.6, 1.9), rng.uniform(0.9, 1.15)
    looks = [table[rng.integers(len(table))] for table in (_SKINS, _HAIRS, _CLOTHES, _CLOTHES)]
    has_bag, has_skirt = bool(rng.random() < 0.35), bool(rng.random() < 0.25)
    width = 0.95
    poses = []
    for pose in range(POSES):
        canvas = art_canvas(length_m=width, height_m=height, px_per_m=px_per_m)
        swing = math.sin(2 * math.pi * pose / POSES)
        _draw(canvas, looks, height=height, build=build, swing=swing, middle=width / 2)
        if has_skirt:
            x, hip = width / 2, height * 0.5
            canvas.polygon([(x - 0.14, hip), (x + 0.14, hip), (x + 0.24, height * 0.28), (x - 0.24, height * 0.28)],
                           looks[3])  # fmt: skip
        if has_bag:
            canvas.rect(
                width / 2 - 0.34, height * 0.5, width / 2 - 0.12, height * 0.76, mix(looks[3], (20, 20, 20), 0.4)
            )
        poses.append(art_from_canvas(canvas, length_m=width, height_m=height, px_per_m=px_per_m))
    return tuple(poses)


def _draw(canvas: Canvas, looks: list[Colour], *, height: float, build: float, swing: float, middle: float) -> None:
    skin, hair, shirt, trousers = looks
    hip, shoulder = height * 0.48, height * 0.82
    for side, shade in ((-1, 0.25), (1, 0.0)):
        _limb(
            canvas, (middle, hip), (middle + side * swing * 0.27, 0.05), 0.085 * build, mix(trousers, (0, 0, 0), shade)
        )
        foot = middle + side * swing * 0.27
        canvas.rect(foot - 0.08, 0.0, foot + 0.15, 0.09, (30, 28, 28))
    _limb(canvas, (middle, shoulder - 0.05), (middle + swing * 0.26, hip), 0.06, mix(shirt, (0, 0, 0), 0.35))
    canvas.polygon(
        [(middle - 0.15 * build, hip), (middle - 0.19 * build, shoulder), (middle + 0.19 * build, shoulder),
         (middle + 0.15 * build, hip)],
        shirt,
    )  # fmt: skip
    _limb(canvas, (middle, shoulder - 0.05), (middle - swing * 0.26, hip), 0.06, mix(shirt, (0, 0, 0), 0.15))
    canvas.rect(middle - 0.05, shoulder, middle + 0.05, shoulder + 0.06, skin)
    canvas.ellipse(middle, height - 0.13, 0.105, 0.13, hair)
    canvas.ellipse(middle + 0.03, height - 0.155, 0.08, 0.1, skin)


def _limb(canvas: Canvas, start: tuple[float, float], end: tuple[float, float], half: float, colour: Colour) -> None:
    (x0, y0), (x1, y1) = start, end
    canvas.polygon([(x0 - half, y0), (x0 + half, y0), (x1 + half * 0.8, y1), (x1 - half * 0.8, y1)], colour)
