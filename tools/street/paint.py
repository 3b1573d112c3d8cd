"""A drawing surface in plain numpy: polygons, ellipses, textures and area resampling. Knows nothing of traffic."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

import numpy as np
from numpy.typing import NDArray

__all__ = ["Canvas", "Colour", "Point", "cloud", "mix", "resample_area", "running_sums"]

Colour = tuple[float, float, float]
Point = tuple[float, float]


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return `first` with `share` (0 to 1) of `second` blended in."""
    red, green, blue = (a + (b - a) * share for a, b in zip(first, second, strict=True))
    return red, green, blue


class Canvas:
    """Pixels that shapes are painted on, in the caller's own unit.

    `rgb` is float32 `(H, W, 3)` in 0 to 255; `alpha` float32 `(H, W)` is 1 where something was painted; `light` float32
    `(H, W)` is 1 where the paint shines by itself (a lamp), so that night does not darken it.

    `width`, `height`: pixels. `scale`: pixels per unit of the coordinates given to the shapes. `origin`: pixel of the
    coordinate (0, 0). `up`: y grows upwards (metres above ground), else downwards (image).
    """

    def __init__(
        self, *, width: int, height: int, scale: float = 1.0, origin: Point = (0.0, 0.0), up: bool = False
    ) -> None:
        self.rgb: NDArray[np.float32] = np.zeros((height, width, 3), np.float32)
        self.alpha: NDArray[np.float32] = np.zeros((height, width), np.float32)
        self.light: NDArray[np.float32] = np.zeros((height, width), np.float32)
        self._scale = np.array([scale, -scale if up else scale])
        self._origin = np.array(origin)

    def polygon(self, points: Sequence[Point], colour: Colour, *, opacity: float = 1.0) -> None:
        """Fill a polygon (even-odd rule) given by its corners."""
        corners = np.array(points) * self._scale + self._origin
        window = self._window(corners.min(axis=0), corners.max(axis=0))
        columns, rows = _centres(window)
        inside = np.zeros((len(rows), len(columns)), bool)
        for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            crosses = (y0 <= rows) != (y1 <= rows)
            if crosses.any():
                at = x0 + (rows[crosses] - y0) * ((x1 - x0) / (y1 - y0))
                inside[crosses] ^= columns[None, :] >= at[:, None]
        self._fill(window, inside, colour, opacity)

    def rect(
        self, x0: float, y0: float, x1: float, y1: float, colour: Colour, *, opacity: float = 1.0, light: bool = False
    ) -> None:
        """Fill the upright rectangle between two opposite corners."""
        corners = np.array([(x0, y0), (x1, y1)]) * self._scale + self._origin
        low, high = np.round(corners.min(axis=0)), np.round(corners.max(axis=0))
        self._fill(self._window(low, high), ..., colour, opacity, light)

    def ellipse(
        self, cx: float, cy: float, rx: float, ry: float, colour: Colour, *, opacity: float = 1.0, light: bool = False
    ) -> None:
        centre = np.array([cx, cy]) * self._scale + self._origin
        half = np.abs(np.array([rx, ry]) * self._scale)
        window = self._window(centre - half, centre + half)
        columns, rows = _centres(window)
        across, down = (columns - centre[0]) / half[0], (rows - centre[1]) / half[1]
        self._fill(window, across[None, :] ** 2 + down[:, None] ** 2 <= 1.0, colour, opacity, light)

    def _window(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[slice, slice]:
        limit = (self.alpha.shape[1], self.alpha.shape[0])
        x0, y0 = (int(np.clip(np.floor(value), 0, top)) for value, top in zip(low, limit, strict=True))
        x1, y1 = (int(np.clip(np.ceil(value), 0, top)) for value, top in zip(high, limit, strict=True))
        return slice(y0, max(y0, y1)), slice(x0, max(x0, x1))

    def _fill(
        self,
        window: tuple[slice, slice],
        inside: NDArray[np.bool_] | EllipsisType,
        colour: Colour,
        opacity: float,
        light: bool = False,
    ) -> None:
        rgb, alpha = self.rgb[window], self.alpha[window]
        if not alpha.size:
            return
        paint = np.array(colour, np.float32)
        rgb[inside] = paint if opacity >= 1 else rgb[inside] * (1 - opacity) + paint * opacity
        alpha[inside] = np.maximum(alpha[inside], opacity)
        self.light[window][inside] = float(light)


def _centres(window: tuple[slice, slice]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows, columns = window
    return np.arange(columns.start, columns.stop) + 0.5, np.arange(rows.start, rows.stop) + 0.5


def running_sums(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sums from the top down to each row edge: `(C, H + 1, W)` of planes `(C, H, W)`, both float32."""
    sums = np.zeros((planes.shape[0], planes.shape[1] + 1, planes.shape[2]), np.float32)
    np.cumsum(planes, axis=1, out=sums[:, 1:])
    return sums


def resample_area(sums: NDArray[np.float32], *, width: int, height: int) -> NDArray[np.float32]:
    """Resize by averaging area, so that no detail is lost or doubled.

    By running sums, not as a matrix product: the threads of a BLAS wait for each other, and on a machine that is busy
    with something else that takes longer than the work.
    `sums`: float32 `(C, H + 1, W)`, the `running_sums` of it. Returns: float32 `(C, height, width)`.
    """
    turned = np.ascontiguousarray(_averaged(sums, height).transpose(0, 2, 1))
    resized: NDArray[np.float32] = _averaged(running_sums(turned), width).transpose(0, 2, 1)
    return resized


def _averaged(sums: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return `count` equal rows, each the mean of what it covers, `(C, count, W)`."""
    length = sums.shape[1] - 1
    edges = np.linspace(0, length, count + 1)
    low = np.minimum(edges.astype(np.intp), length - 1)
    share = (edges - low).astype(np.float32)[:, None]
    above, below = sums[:, low], sums[:, low + 1]
    below -= above
    below *= share
    above += below
    averaged: NDArray[np.float32] = np.diff(above, axis=1) * np.float32(count / length)
    return averaged


def cloud(rng: np.random.Generator, *, width: int, height: int, cell: int) -> NDArray[np.float32]:
    """Return smooth noise, float32 `(height, width)`, about -1 to 1, with blobs of about `cell` pixels."""
    coarse = rng.uniform(-1, 1, (1, height // cell + 2, width // cell + 2)).astype(np.float32)
    stretched: NDArray[np.float32] = _stretch(_stretch(coarse[0], height).T, width).T
    return stretched


def _stretch(plane: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Return `plane` interpolated linearly to `length` rows."""
    at = np.linspace(0, len(plane) - 1.001, length)
    low = at.astype(int)
    share = (at - low)[:, None].astype(np.float32)
    stretched: NDArray[np.float32] = plane[low] * (1 - share) + plane[low + 1] * share
    return stretched
