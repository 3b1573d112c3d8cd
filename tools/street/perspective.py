"""A camera on a mast above flat ground, and the paths that road users follow on that ground."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Path", "Spot", "Viewpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A ground point in the picture: `x`, `y` in pixels, `px_per_m` the scale there."""

    x: float
    y: float
    px_per_m: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """A pinhole camera whose picture plane is upright, `height_m` above the ground.

    `horizon_px`: row, negative when it is above the picture. `centre_px`: column of the optical axis.
    """

    focal_px: float
    height_m: float
    horizon_px: float
    centre_px: float

    def spot(self, across_m: float, away_m: float) -> Spot:
        """Return where a ground point `away_m` > 0 ahead and `across_m` to the right is seen."""
        scale = self.focal_px / away_m
        return Spot(x=self.centre_px + scale * across_m, y=self.horizon_px + scale * self.height_m, px_per_m=scale)

    def point(self, across_m: float, away_m: float) -> tuple[float, float]:
        """Return the pixel (x, y) of a ground point."""
        spot = self.spot(across_m, away_m)
        return spot.x, spot.y

    def away_m(self, row_px: float) -> float:
        """Return the distance of the ground seen at a row below the horizon."""
        return self.focal_px * self.height_m / (row_px - self.horizon_px)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A straight walk along one ground axis that starts over after `length_m`.

    Attributes:
        is_across: It runs from left to right, else away from the camera.
        fixed_m: The other ground coordinate.
        from_m, visible_m: Smallest coordinate along the path, and how far from there the walker is in the world; then
            it is away until the next lap.
        direction: 1 or -1 along the axis.
        offset_m: Where on the lap the walker is at frame 0.
        laps: Whole ones in one period, so that a period has no seam.
    """

    is_across: bool
    fixed_m: float
    from_m: float
    visible_m: float
    length_m: float
    direction: int
    offset_m: float
    laps: int

    def walked_m(self, phase: float) -> float:
        """Return the distance since the start of the lap, `phase` in 0 to 1 of the period."""
        return math.fmod(self.offset_m + self.laps * phase * self.length_m, self.length_m)

    def at(self, phase: float, camera: Viewpoint) -> Spot | None:
        """Return None while the road user is away."""
        walked = self.walked_m(phase)
        if walked >= self.visible_m:
            return None
        along = self.from_m + (walked if self.direction > 0 else self.visible_m - walked)
        return camera.spot(along, self.fixed_m) if self.is_across else camera.spot(self.fixed_m, along)
