"""Observations of one model: histograms, and the images behind them, so that images can be spread over machines and
merged afterwards; and how much images differ.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Histogram, merge_all
from edge.calibrate.table import DARK, DatasetId, Variety
from edge.errors import CalibrationError

__all__ = [
    "LOOK_CELLS",
    "Observations",
    "Scene",
    "camera_of",
    "largest_of_both",
    "merge_observations",
    "scene_of",
    "variety_of",
]

LOOK_CELLS = 16 * 16 * 3
_ALIKE = 8  # levels of a cell; other qualities and sizes of a file change less, a frame and the next one 22 at least
_FEWEST_OF_A_CAMERA = 4  # images on average; where there are fewer, names tell no cameras
_LUMA = np.array((0.299, 0.587, 0.114))  # ITU-R BT.601
# What tools put behind a camera's name: the export of Roboflow; the event of Frigate; dates, times and frame numbers.
_BEHIND_CAMERA = re.compile(
    r"(?:(?:_(?:jpe?g|png|bmp|webp))?\.rf\.[0-9a-f]+|-\d{10}\.\d+-[0-9a-z]{6}"
    r"|(?:[-_. T](?:\d{4}-\d\d-\d\d|\d\d[-.:]\d\d[-.:]\d\d|\d{3,}))+)+$"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """An image in small: the mean colours of 16 x 16 parts, RGB, row by row; and its camera, empty: not known."""

    look: bytes
    camera: str

    def __post_init__(self) -> None:
        if len(self.look) != LOOK_CELLS:
            raise ValueError(f"expected {LOOK_CELLS} bytes of a look, got {len(self.look)}")


def scene_of(coarse: NDArray[np.int16], stem: str) -> Scene:
    """Return the scene of an image by its 768 mean colours and its file's name."""
    return Scene(coarse.astype(np.uint8).tobytes(), camera_of(stem))


def camera_of(stem: str) -> str:
    """Return the camera that a file's name begins with, empty where no time or number follows one."""
    found = _BEHIND_CAMERA.search(f"_{stem}")
    return stem[: max(found.start() - 1, 0)] if found is not None else ""


def variety_of(scenes: Collection[Scene]) -> Variety:
    """Return how much images differ, objects aside; the order does not matter."""
    looks = np.frombuffer(b"".join(scene.look for scene in scenes), np.uint8).reshape(-1, LOOK_CELLS).astype(np.int16)
    brightness = (looks.reshape(len(looks), -1, 3) @ _LUMA).mean(axis=1)
    low, median, high = np.percentile(brightness, (10, 50, 90)).round().astype(int).tolist()
    return Variety(
        images=len(looks),
        alike=_alike(looks),
        dark=int((brightness < DARK).sum()),
        brightness=(low, median, high),
        cameras=_by_camera(Counter(scene.camera for scene in scenes)),
    )


def _alike(looks: NDArray[np.int16]) -> int:
    """Return how many look like another one, but for one of each such pair or chain."""
    parents = list(range(len(looks)))

    def root(index: int) -> int:
        while parents[index] != index:
            index = parents[index]
        return index

    for index, look in enumerate(looks):
        for other in np.flatnonzero(abs(looks[:index] - look).max(axis=1) <= _ALIKE).tolist():
            parents[root(other)] = root(index)
    return sum(parent != index for index, parent in enumerate(parents))


def _by_camera(cameras: Mapping[str, int]) -> dict[str, int]:
    """Return the images of each camera, empty where the names of some files do not tell."""
    is_told = "" not in cameras and _FEWEST_OF_A_CAMERA * len(cameras) <= sum(cameras.values())
    return dict(sorted(cameras.items())) if is_told else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Observations of one model under one preprocess."""

    # lower-case hex digests of the bytes of the image files that were seen, sorted, each once
    image_sha256s: tuple[str, ...]
    histograms: Mapping[str, Histogram]
    # the largest |x| of other tensors, infinite or NaN where the model overflowed
    peaks: Mapping[str, float] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.image_sha256s)

    @property
    def dataset(self) -> DatasetId:
        """The images as a set: SHA-256 over their sorted digests, 32 bytes each.

        It depends neither on the names and order of the files, nor on how they were spread.
        """
        digests = b"".join(map(bytes.fromhex, self.image_sha256s))
        return DatasetId(images=self.images, sha256=hashlib.sha256(digests).hexdigest())


def merge_observations(one: Observations, other: Observations) -> Observations:
    """Return both together, of the same tensors; associative and commutative.
    Raises `CalibrationError` if they share images.
    """
    _require_other_images(one, other)
    return Observations(
        image_sha256s=tuple(sorted((*one.image_sha256s, *other.image_sha256s))),
        histograms=merge_all(one.histograms, other.histograms),
        peaks=largest_of_both(one.peaks, other.peaks),
    )


def largest_of_both(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the larger one for each name; NaN stays NaN."""
    return {name: float(np.maximum(one.get(name, 0.0), other.get(name, 0.0))) for name in dict.fromkeys((*one, *other))}


def _require_other_images(one: Observations, other: Observations) -> None:
    shared = sorted(set(one.image_sha256s).intersection(other.image_sha256s))
    if shared:
        raise CalibrationError(
            f"{len(shared)} of the images are in both of the observations and would be counted twice, the first is "
            f"{shared[0]}"
        )
