"""Synthetic traffic cameras with exact ground truth: a frame is a pure function of (seed, size, index).

What is labelled: the tight box of an object's visible pixels, cut at the frame. An object of which less than
`MIN_VISIBLE` of its pixels can be seen (cut off by the frame or hidden by a nearer one), or whose visible box is
narrower or lower than `MIN_SIDE_SHARE` of the frame's height, is neither labelled nor drawn: nothing ambiguous is left.
Shadows reach up to `tools.street.sprites.SHADOW_M` beyond an object and belong to no box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.demo.cameras import Truth
from edge.types import ImageSize
from tools.street.backdrop import draw_backdrop
from tools.street.cast import PERIOD_FRAMES, cast_from_street
from tools.street.layout import street_from_seed
from tools.street.sprites import Sprite, Window, sprite_from_art

__all__ = ["CLASSES", "MIN_SIDE_SHARE", "MIN_VISIBLE", "Scene"]

CLASSES: tuple[str, ...] = ("car", "truck", "bus", "person")
"""Labels; the index is the class_id."""

MIN_VISIBLE = 0.3
MIN_SIDE_SHARE = 6 / 360

_NOISE_BORDER_PX = 32
_MAX_NOISE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A sprite at its place in one frame; `number` is that of its actor."""

    number: int
    class_id: int | None
    sprite: Sprite
    where: Window
    part: Window
    nearness: float


class Scene:
    """One synthetic camera.

    `seed` decides everything: view, light, street, who drives and walks. The same seed shows the same street at every
    `size` of the frames.
    """

    period_frames: int = PERIOD_FRAMES

    def __init__(self, seed: int, size: ImageSize) -> None:
        self.size = size
        self._street = street_from_seed(seed, size)
        self._backdrop = draw_backdrop(self._street, seed)
        self._actors = cast_from_street(self._street, seed)
        self._noise = _sensor_noise(seed, size)
        self._gain = np.array(self._street.gain, np.float32)
        self._sprites: dict[tuple[int, int, float], Sprite] = {}

    def frame(self, index: int) -> tuple[NDArray[np.uint8], Truth]:
        """Return the picture and its ground truth at a frame number; `period_frames` later they are the same again.
        uint8 `(H, W, 3)` RGB owned by the caller, and what is in it, farthest object first.
        """
        placed, truth = self._visible(index)
        return self._paint(placed, index), truth

    def truth(self, index: int) -> Truth:
        """Return the truth without painting the frame."""
        return self._visible(index)[1]

    def _visible(self, index: int) -> tuple[list[_Placed], Truth]:
        """Return what is drawn, farthest first, and the truth about it."""
        placed = self._placed(index)
        shares, boxes = _measure(placed, self.size)
        least = MIN_SIDE_SHARE * self.size.height
        sides = np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])
        is_shown = (shares >= MIN_VISIBLE) & (sides >= least)
        shown = [each for each, is_seen in zip(placed, is_shown, strict=True) if each.class_id is None or is_seen]
        _, boxes = _measure(shown, self.size)
        labelled = [row for row, each in enumerate(shown) if each.class_id is not None]
        class_id = np.array([shown[row].class_id for row in labelled], np.int32)
        object_id = np.array([shown[row].number for row in labelled], np.int64)
        return shown, Truth(xyxy=boxes[labelled].astype(np.float32), class_id=class_id, object_id=object_id)

    def _placed(self, index: int) -> list[_Placed]:
        """Return every object that touches the frame, farthest first."""
        phase = (index % self.period_frames) / self.period_frames
        found = []
        for number, actor in enumerate(self._actors):
            spot = actor.spot(phase, self._street.camera)
            if spot is None:
                continue
            sprite = self._sprite(number, actor.pose(phase), spot.px_per_m)
            windows = sprite.window(spot.x, spot.y, width=self.size.width, height=self.size.height)
            if windows is not None:
                found.append(
                    _Placed(
                        number=number,
                        class_id=actor.class_id,
                        sprite=sprite,
                        where=windows[0],
                        part=windows[1],
                        nearness=spot.y,
                    )
                )
        return sorted(found, key=lambda each: each.nearness)

    def _sprite(self, number: int, pose: int, px_per_m: float) -> Sprite:
        """Return the sprite at a scale rounded to half a percent of a typical one; cut once, then remembered."""
        step = self.size.height / 1440
        key = (number, pose, round(px_per_m / step) * step)
        if key not in self._sprites:
            self._sprites[key] = sprite_from_art(self._actors[number].arts[pose], px_per_m=key[2], gain=self._gain)
        return self._sprites[key]

    def _paint(self, placed: list[_Placed], index: int) -> NDArray[np.uint8]:
        frame: NDArray[np.uint8] = self._backdrop.copy()
        for each in placed:
            each.sprite.blend(frame, each.where, each.part)
        rng = np.random.default_rng([index % self.period_frames, 5])
        top, left = rng.integers(_NOISE_BORDER_PX, size=2)
        # Unsigned addition wraps, and that is the point: the noise holds negative values too. Pixels keep HEADROOM.
        frame += self._noise[top : top + self.size.height, left : left + self.size.width]
        return frame


def _sensor_noise(seed: int, size: ImageSize) -> NDArray[np.uint8]:
    """Return noise to cut frames' noise from: int8 values seen as uint8, larger than a frame by a border."""
    rng = np.random.default_rng([seed, 4])
    shape = (size.height + _NOISE_BORDER_PX, size.width + _NOISE_BORDER_PX, 3)
    noise = rng.normal(0, rng.uniform(0.5, 2.5), shape)
    whole: NDArray[np.uint8] = np.clip(noise, -_MAX_NOISE, _MAX_NOISE).round().astype(np.int8).view(np.uint8)
    return whole


def _measure(placed: list[_Placed], size: ImageSize) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the visible share (of all pixels, also those outside) and the visible box `(M, 4)` xyxy of each object."""
    owner = np.zeros((size.height, size.width), np.int16)
    for number, each in enumerate(placed, start=1):
        owner[each.where][each.sprite.body[each.part]] = number
    shares, boxes = np.zeros(len(placed)), np.zeros((len(placed), 4), np.int64)
    for row, each in enumerate(placed):
        own = owner[each.where] == row + 1
        columns, rows = np.flatnonzero(own.any(axis=0)), np.flatnonzero(own.any(axis=1))
        if len(rows):
            shares[row] = np.count_nonzero(own) / np.count_nonzero(each.sprite.body)
            left, top = each.where[1].start, each.where[0].start
            boxes[row] = left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1
    return shares, boxes
