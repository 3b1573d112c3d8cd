"""Zones and lines on a picture, and where points are to them. Coordinates are shares of width and height, y down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Anchor", "Line", "Lines", "Point", "Zone", "Zones", "anchors"]

Point = tuple[float, float]
Points = NDArray[np.float64]

Anchor = str
"""The point of a box that stands for the object: `bottom` (where it stands) or `centre`."""

# A box that the frame cuts off ends on the frame's edge. There it is still inside of a zone that reaches to the edge.
_EDGE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A part of the picture. `class_ids` None: all classes; `dwell_s` None: no object stays too long."""

    id: str
    polygon: tuple[Point, ...]
    class_ids: frozenset[int] | None = None
    dwell_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line to be crossed; forward is from its left to its right, for who goes from `start` to `end`."""

    id: str
    start: Point
    end: Point
    class_ids: frozenset[int] | None = None


class Zones:
    """Z polygons, looked at together."""

    def __init__(self, polygons: Sequence[Sequence[Point]]) -> None:
        corners = [np.array(polygon, np.float64) for polygon in polygons]
        before = [np.roll(polygon, 1, axis=0) for polygon in corners]
        self._first = np.cumsum([0, *map(len, corners)])[:-1]
        a, b = np.concatenate([np.empty((0, 2)), *before]), np.concatenate([np.empty((0, 2)), *corners])
        # Edges run downwards, and level ones never count; so a ray to the right or to the left sees the same.
        is_up = a[:, 1] > b[:, 1]
        a[is_up], b[is_up] = b[is_up], a[is_up]
        self._left, self._top, self._bottom = a[:, 0].copy(), a[:, 1].copy(), b[:, 1].copy()
        self._wide, self._tall = b[:, 0] - a[:, 0], b[:, 1] - a[:, 1]

    def inside(self, points: Points) -> NDArray[np.bool_]:
        """Return which points (N, 2) lie in which polygons: bool (N, Z), by the even-odd rule."""
        if not len(self._first):
            return np.zeros((len(points), 0), np.bool_)
        x, y = points[:, :1], points[:, 1:]
        is_level = (self._top <= y) & (y < self._bottom)
        is_left = self._wide * (y - self._top) > self._tall * (x - self._left)
        crossings: NDArray[np.int64] = np.add.reduceat(is_level & is_left, self._first, axis=1, dtype=np.int64)
        return (crossings & 1).astype(np.bool_)


class Lines:
    """L lines, looked at together."""

    def __init__(self, lines: Sequence[tuple[Point, Point]]) -> None:
        ends = np.array(lines, np.float64).reshape(-1, 2, 2)
        self._start, self._end = ends[:, 0], ends[:, 1]
        self._d = self._end - self._start

    def crossed(self, before: Points, after: Points) -> NDArray[np.int64]:
        """Return 1 for each line that a point crossed forwards, -1 backwards, 0: (N, L), from `before` to `after`.

        A point on the line belongs to its right side, so that a way over it in two steps is one crossing.
        """
        to_right = self.is_right(after).astype(np.int64) - self.is_right(before)
        if to_right.any():
            # From its left end to its right one: a way back is then measured exactly as the way there.
            is_forward = (to_right > 0)[..., None]
            left = np.where(is_forward, before[:, None], after[:, None])
            way = np.where(is_forward, after[:, None], before[:, None]) - left
            is_beside = (_cross(way, self._start - left) >= 0) == (_cross(way, self._end - left) >= 0)
            to_right[is_beside] = 0
        return to_right

    def is_right(self, points: Points) -> NDArray[np.bool_]:
        """Return on which side of each line, made longer without end, points (N, 2) are: bool (N, L)."""
        right: NDArray[np.bool_] = _cross(self._d, points[:, None] - self._start) >= 0
        return right


def anchors(xyxy: NDArray[np.float32], anchor: Anchor, *, width: int, height: int) -> Points:
    """Return the point of each box (N, 4) in pixels that stands for its object: float64 (N, 2), shares of the frame."""
    points = np.empty((len(xyxy), 2))
    points[:, 0] = (xyxy[:, 0] + xyxy[:, 2]) * (0.5 / width)
    points[:, 1] = xyxy[:, 3] / height if anchor == "bottom" else (xyxy[:, 1] + xyxy[:, 3]) * (0.5 / height)
    np.maximum(points, _EDGE, out=points)
    return np.minimum(points, 1 - _EDGE, out=points)


def _cross(d: Points, e: Points) -> Points:
    """Return the third component of d x e, over the last axis."""
    crossed: Points = d[..., 0] * e[..., 1] - d[..., 1] * e[..., 0]
    return crossed
