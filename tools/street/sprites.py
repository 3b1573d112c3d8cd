"""Artwork of one object and its sprite at one pixel size: drawn once in metres, cut to size, then only copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.street.paint import Canvas, resample_area, running_sums

__all__ = ["HEADROOM", "SHADOW_M", "Artwork", "Sprite", "Window", "art_canvas", "art_from_canvas", "sprite_from_art"]

Window = tuple[slice, slice]

HEADROOM = 8
"""Pixel values stay this far from 0 and 255, so that sensor noise can be added without saturating."""

SHADOW_M = 0.3
"""How far a shadow may reach beyond the body it belongs to, in metres: left, right and below."""

_BODY_ALPHA = 0.35
_SHADOW_ALPHA = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Artwork:
    """One object, seen from one side, at drawing resolution.

    Attributes:
        sums: float32 `(6, H + 1, W)`, running sums of six planes, ready for resampling: red, green, blue (0 to 255,
            multiplied by alpha), alpha, light, shadow (0 to 1).
        width_m, height_m: With the shadow's margin: the ground is `SHADOW_M` above the lower edge.
    """

    sums: NDArray[np.float32]
    width_m: float
    height_m: float

    def mirrored(self) -> Artwork:
        return Artwork(sums=self.sums[:, :, ::-1], width_m=self.width_m, height_m=self.height_m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """Pixels ready to be laid over a frame.

    Attributes:
        colour: uint8 `(h, w, 3)`, already multiplied by its weight.
        keep: uint16 `(h, w, 1)`, the weight of the frame below (0 to 256).
        body: bool `(h, w)`, True on the object itself, False on its shadow and around it.
        left_px, top_px: From the ground point to the left and the top edge (negative).
    """

    colour: NDArray[np.uint8]
    keep: NDArray[np.uint16]
    body: NDArray[np.bool_]
    left_px: int
    top_px: int

    def window(self, x: float, y: float, *, width: int, height: int) -> tuple[Window, Window] | None:
        """Return (where in the frame, which part of the sprite) for a ground point, or None when it is outside."""
        left, top = round(x) + self.left_px, round(y) + self.top_px
        x0, x1 = max(left, 0), min(left + self.body.shape[1], width)
        y0, y1 = max(top, 0), min(top + self.body.shape[0], height)
        if x0 >= x1 or y0 >= y1:
            return None
        return (slice(y0, y1), slice(x0, x1)), (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))

    def blend(self, frame: NDArray[np.uint8], where: Window, part: Window) -> None:
        """Lay this part of the sprite over the frame, uint8 `(H, W, 3)`, in place."""
        below = np.multiply(frame[where], self.keep[part], dtype=np.uint16)
        below >>= 8
        below += self.colour[part]
        frame[where] = below


def art_canvas(*, length_m: float, height_m: float, px_per_m: float) -> Canvas:
    """Return an empty canvas in metres: x from 0 to `length_m`, y upwards from the ground at 0."""
    margin = SHADOW_M * px_per_m
    return Canvas(
        width=round((length_m + 2 * SHADOW_M) * px_per_m),
        height=round((height_m + SHADOW_M) * px_per_m),
        scale=px_per_m,
        origin=(margin, height_m * px_per_m),
        up=True,
    )


def art_from_canvas(canvas: Canvas, *, length_m: float, height_m: float, px_per_m: float) -> Artwork:
    """Return the drawing with the shadow that its length casts on the ground."""
    ground = art_canvas(length_m=length_m, height_m=height_m, px_per_m=px_per_m)
    depth = min(SHADOW_M, 0.12 + 0.06 * length_m) * 0.95
    reach = length_m * 0.35 if length_m < 1 else length_m / 2 + 0.2
    ground.ellipse(length_m / 2 + 0.04, 0.0, reach, depth, (0, 0, 0))
    colour = canvas.rgb.transpose(2, 0, 1) * canvas.alpha
    planes = np.concatenate([colour, canvas.alpha[None], canvas.light[None], ground.alpha[None]])
    return Artwork(sums=running_sums(planes), width_m=length_m + 2 * SHADOW_M, height_m=height_m + SHADOW_M)


def sprite_from_art(art: Artwork, *, px_per_m: float, gain: NDArray[np.float32]) -> Sprite:
    """Cut the artwork to a size and light it.

    `gain`: float32 `(3,)`, how much of red, green and blue the daylight leaves.
    """
    width, height = max(3, round(art.width_m * px_per_m)), max(3, round(art.height_m * px_per_m))
    planes = resample_area(art.sums, width=width, height=height)
    alpha = np.where(planes[3] >= _BODY_ALPHA, planes[3], 0)
    lit = gain[:, None, None] * (1 - planes[4]) + np.maximum(gain[:, None, None], 0.95) * planes[4]
    inked = np.clip(planes[:3] / np.maximum(planes[3], 1e-3) * lit, HEADROOM, 255 - HEADROOM)
    shadow = planes[5] * _SHADOW_ALPHA * (1 - alpha)
    colour = inked * alpha + HEADROOM * shadow
    return Sprite(
        colour=np.ascontiguousarray(colour.transpose(1, 2, 0).round().astype(np.uint8)),
        keep=np.round(256 * (1 - alpha - shadow))[:, :, None].astype(np.uint16),
        body=alpha > 0,
        left_px=-round(width / 2),
        top_px=-round((art.height_m - SHADOW_M) * px_per_m),
    )
