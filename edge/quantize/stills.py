"""Image files that are known by their content, read or not yet, and whether two of them show the same picture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError
from edge.evaluate.class_names import listed
from edge.media.images import image_bytes, read_image, shrunk
from edge.types import ImageSize

__all__ = ["Look", "StillImage", "each_decoded", "image_content", "image_digest", "look_of", "looking_like"]

Seen = TypeVar("Seen")


class StillImage:
    """An image file; `sha256` is of its bytes, lower-case hex.

    Where that is not given, the file is read for it when it is asked for, or when the image travels.
    Raises `DatasetError` if it cannot be read then.
    """

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        self.path = path
        if sha256 is not None:
            self.sha256 = sha256

    @cached_property
    def sha256(self) -> str:
        return image_digest(self.path)

    def __reduce__(self) -> tuple[type[StillImage], tuple[Path, str]]:
        return StillImage, (self.path, self.sha256)


def image_digest(path: Path) -> str:
    """Raise `DatasetError` if the file cannot be read."""
    return hashlib.sha256(image_bytes(path)).hexdigest()


def image_content(image: StillImage) -> bytes:
    """Raise `DatasetError` if it cannot be read, or is not what it was when its digest was taken."""
    content = image_bytes(image.path)
    if hashlib.sha256(content).hexdigest() != image.sha256:
        raise DatasetError(f"{image.path}: has changed since it was looked at", hint="run the command again")
    return content


def each_decoded(
    paths: Sequence[Path], look: Callable[[NDArray[np.uint8]], Seen], *, is_skipping_undecodable: bool | None = None
) -> tuple[dict[Path, Seen], tuple[Path, ...]]:
    """Return what `look` gives for the picture, uint8 (H, W, 3) RGB, of each image of a folder, and those left out.

    `is_skipping_undecodable`: leave out what cannot be decoded; None: the command has no option for that.
    Raises `DatasetError` that names all that cannot be decoded, or if none of them can.
    """
    seen, broken = dict[Path, Seen](), dict[Path, DatasetError]()
    for path in paths:
        try:
            seen[path] = look(read_image(path))
        except DatasetError as error:
            broken[path] = error
    folder = paths[0].parent
    if broken and not is_skipping_undecodable:
        first = next(iter(broken.values()))
        way_out = "" if is_skipping_undecodable is None else ", or leave them out with --skip-undecodable"
        raise DatasetError(
            f"{folder}: {len(broken)} of {len(paths)} images cannot be decoded: "
            f"{listed([path.name for path in broken])}; the first: {first.problem}",
            hint=(first.hint or "mend or remove them") + way_out,
        )
    if not seen:
        raise DatasetError(f"{folder}: none of the {len(paths)} images can be decoded")
    return seen, tuple(broken)


_SIDE = 48
_BLOCK = 3
# Grey levels. JPEG at quality 30, WebP at 80 and half the size change 16 x 16 cells by 8 at most and 48 x 48 by 25; two
# photos differ by 27 and 84 at least, a frame of a camera and the next one, with something that moves, by 22 and 81.
_COARSE, _FINE = 8, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A picture in small: int16 (48, 48, 3); its size, and the digest of all its pixels."""

    small: NDArray[np.int16]
    size: ImageSize
    pixels_sha256: str

    @property
    def coarse(self) -> NDArray[np.int16]:
        """16 x 16 cells, in one row."""
        cells = self.small.reshape(_SIDE // _BLOCK, _BLOCK, _SIDE // _BLOCK, _BLOCK, 3).mean(axis=(1, 3))
        return np.asarray(cells, np.int16).ravel()


def look_of(image: NDArray[np.uint8]) -> Look:
    """Return how uint8 (H, W, 3) RGB looks."""
    pixels = hashlib.sha256(repr(image.shape).encode() + np.ascontiguousarray(image).tobytes()).hexdigest()
    size = ImageSize(width=image.shape[1], height=image.shape[0])
    return Look(small=shrunk(image, side=_SIDE).astype(np.int16), size=size, pixels_sha256=pixels)


def looking_like(looks: Mapping[str, Look], others: Mapping[str, Look]) -> dict[str, str]:
    """Return by name which of `looks` show the same as one of `others`, the first of them."""
    names, same = list(others), dict[str, str]()
    if not names:
        return same
    coarse = np.stack([look.coarse for look in others.values()])
    for name, look in looks.items():
        for index in np.flatnonzero(abs(coarse - look.coarse).max(axis=1) <= _COARSE).tolist():
            if abs(others[names[index]].small - look.small).max() <= _FINE:
                same[name] = names[index]
                break
    return same
