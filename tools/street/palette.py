"""The colours that vehicles are painted in, and the choice of one."""

from __future__ import annotations

import numpy as np

from tools.street.paint import Colour

__all__ = [
    "AMBER",
    "BUS_PAINTS",
    "CAR_PAINTS",
    "DARK",
    "GLASS",
    "HEADLAMP",
    "LOAD_PAINTS",
    "RIM",
    "SKY",
    "TAIL_LAMP",
    "TYRE",
    "WHITE",
    "pick",
]

GLASS: Colour = (52, 66, 80)
SKY: Colour = (158, 178, 192)
TYRE: Colour = (26, 26, 28)
RIM: Colour = (150, 152, 156)
DARK: Colour = (34, 35, 38)
WHITE: Colour = (236, 236, 230)
HEADLAMP: Colour = (250, 246, 222)
TAIL_LAMP: Colour = (206, 28, 24)
AMBER: Colour = (246, 166, 44)

CAR_PAINTS: tuple[Colour, ...] = (
    (206, 208, 210), (238, 238, 236), (42, 44, 48), (96, 100, 106), (150, 30, 32), (34, 62, 118), (70, 104, 76),
    (198, 164, 60), (120, 90, 64), (72, 130, 160), (172, 84, 40),
)  # fmt: skip
LOAD_PAINTS: tuple[Colour, ...] = (
    (228, 228, 224), (206, 210, 214), (44, 76, 130), (160, 42, 38), (78, 116, 82), (206, 158, 54), (120, 122, 126),
)  # fmt: skip
BUS_PAINTS: tuple[Colour, ...] = (
    (184, 36, 36), (230, 228, 218), (40, 92, 150), (214, 160, 40), (58, 128, 88), (96, 102, 110),
)  # fmt: skip


def pick(rng: np.random.Generator, paints: tuple[Colour, ...]) -> Colour:
    """Return one of the paints, a little off."""
    base = np.array(paints[rng.integers(len(paints))]) + rng.normal(0, 9, 3)
    red, green, blue = np.clip(base, 12, 244)
    return float(red), float(green), float(blue)
