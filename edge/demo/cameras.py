"""Synthetic cameras for the demo: clips rendered and encoded on the spot, and the truth about each of their frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.demo.samples import write_sample
from edge.demo.street.scene import Scene, Truth
from edge.media.ffmpeg.encode import write_h264
from edge.types import ImageSize

__all__ = ["SyntheticCamera", "render_camera", "sample_step"]

FPS = 15
SIZE = ImageSize(width=640, height=360)
_SAMPLE_EVERY = 11  # 33 a camera: 132 of four cameras are enough to calibrate with, and are looked at within seconds
_CAMERAS_SAMPLED_SO = 4  # of more cameras, as many images altogether
_SEEDS = (1, 3, 5, 10, 13, 14, 20)  # streets with good views; the training's seeds begin at 10,000


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticCamera:
    """A looping clip at `path`; `truths[i]` is what is in its frame i."""

    name: str
    path: Path
    truths: tuple[Truth, ...]

    def truth_at(self, pts_us: int) -> Truth:
        """Return what is in the frame with this timestamp, over all loops."""
        return self.truths[round(pts_us * FPS / 1e6) % len(self.truths)]


def sample_step(cameras: int) -> int:
    """Return which frames of each of so many cameras become still images: every n-th."""
    return _SAMPLE_EVERY * -(-cameras // _CAMERAS_SAMPLED_SO)


def render_camera(
    number: int, folder: Path, *, on_frame: Callable[[], None], sample_every: int | None = None
) -> SyntheticCamera:
    """Render camera `number`, from 0, to an H.264 clip of one period in `folder`.

    Args:
        number: of the camera.
        folder: that the clip is written to.
        on_frame: called for each frame.
        sample_every: every n-th frame is also written as a labelled still image (see `edge.demo.samples`); None: none.

    Raises:
        MissingDependencyError: if the encoder is not installed.
    """
    name = f"camera-{number + 1}"
    scene = Scene(_SEEDS[number % len(_SEEDS)] + 100 * (number // len(_SEEDS)), SIZE)
    truths: list[Truth] = []

    def frames() -> Iterator[NDArray[np.uint8]]:
        for index in range(scene.period_frames):
            picture, truth = scene.frame(index)
            truths.append(truth)
            if sample_every is not None and index % sample_every == 0:
                write_sample(folder, f"{name}-{index:03d}", picture, truth)
            on_frame()
            yield picture

    path = folder / f"{name}.mp4"
    write_h264(path, frames(), size=SIZE, fps=FPS)
    return SyntheticCamera(name=name, path=path, truths=tuple(truths))
