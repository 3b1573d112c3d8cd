"""The demo's cameras: clips of synthetic streets, the exact truth about each frame, and labelled stills of them.

`python -m tools.street` makes these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.types import ImageSize
from edge.writing import write_whole

__all__ = ["CLIPS", "FPS", "SIZE", "SyntheticCamera", "Truth", "lay_out_cameras", "read_truths"]

CLIPS = Path(__file__).parent / "clips"
FPS = 15
SIZE = ImageSize(width=640, height=360)
_STREETS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The objects in a frame.

    Attributes:
        xyxy: float32 `(N, 4)`, pixels of the frame; right and lower edges are exclusive.
        class_id: int32 `(N,)`, index into `tools.street.scene.CLASSES`, the classes of the demo's model.
        object_id: int64 `(N,)`, which object it is: the same in all frames, also after it was away.
    """

    xyxy: NDArray[np.float32]
    class_id: NDArray[np.int32]
    object_id: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticCamera:
    """A looping clip at `path`; `truths[i]` is the truth about its frame i."""

    name: str
    path: Path
    truths: tuple[Truth, ...]

    def truth_at(self, pts_us: int) -> Truth:
        """Return the truth about the frame with this timestamp, over all loops."""
        return self.truths[round(pts_us * FPS / 1e6) % len(self.truths)]


def lay_out_cameras(count: int, folder: Path) -> list[SyntheticCamera]:
    """Copy the clips of `count` cameras and their labelled stills to `folder`, in place of those of an earlier demo;
    four streets take turns.
    """
    for path in _files("camera-*"):
        (folder / path.relative_to(CLIPS)).unlink(missing_ok=True)
    cameras = []
    for number in range(count):
        street = f"camera-{number % _STREETS + 1}"
        if number < _STREETS:
            _copy(street, folder)
        truths = read_truths(CLIPS / f"{street}.npz")
        cameras.append(SyntheticCamera(name=f"camera-{number + 1}", path=folder / f"{street}.mp4", truths=truths))
    return cameras


def _copy(street: str, folder: Path) -> None:
    for path in _files(street):
        target = folder / path.relative_to(CLIPS)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, path.read_bytes())


def _files(street: str) -> Iterator[Path]:
    for pattern in (f"{street}.mp4", f"images/{street}-*.jpg", f"labels/{street}-*.txt"):
        yield from CLIPS.glob(pattern)


def read_truths(path: Path) -> tuple[Truth, ...]:
    with np.load(path) as stored:
        ends = np.cumsum(stored["objects"])[:-1]
        columns = [np.split(stored[name], ends) for name in ("xyxy", "class_id", "object_id")]
    return tuple(
        Truth(xyxy=xyxy, class_id=class_id, object_id=object_id)
        for xyxy, class_id, object_id in zip(*columns, strict=True)
    )
