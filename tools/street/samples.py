"""Labelled still images of the synthetic cameras, in YOLO's layout: to evaluate and to calibrate with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.demo.cameras import Truth
from edge.media.images import encode_jpeg

__all__ = ["write_sample"]


def write_sample(folder: Path, name: str, picture: NDArray[np.uint8], truth: Truth, *, quality: int = 95) -> None:
    """Write `images/NAME.jpg` and `labels/NAME.txt` (class cx cy w h, 0 to 1) below `folder`.

    `picture`: uint8 (H, W, 3) RGB. `quality`: of the JPEG, 0 to 100.
    """
    height, width = picture.shape[:2]
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "images" / f"{name}.jpg").write_bytes(encode_jpeg(picture, quality=quality))
    lines = []
    for (left, top, right, bottom), class_id in zip(truth.xyxy.tolist(), truth.class_id.tolist(), strict=True):
        centre = ((left + right) / 2 / width, (top + bottom) / 2 / height)
        size = ((right - left) / width, (bottom - top) / height)
        lines.append(f"{class_id} {centre[0]:.6f} {centre[1]:.6f} {size[0]:.6f} {size[1]:.6f}\n")
    (folder / "labels" / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
