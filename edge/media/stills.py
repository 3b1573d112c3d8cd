"""A folder or list of still images, read as a stream."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError, EndOfStream, SourceError
from edge.media.images import read_image, resize
from edge.types import ClockSource, DropReason, Frame, FrameHeader, ImageSize, Preprocess, SourceCounts, StreamId
from edge.vision import letterbox

__all__ = ["IMAGE_SUFFIXES", "StillSource", "list_images", "passed_over"]

_MOST_LOOKED_AT = 100_000
_FOLDERS_TOLD = 4
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")


def list_images(folder: Path) -> list[Path]:
    """Directly in `folder`, by name, without hidden files, which macOS leaves beside images (`._a.jpg`).
    Raises `DatasetError` if there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        found = "found a file" if folder.exists() else "there is no such folder"
        is_yaml = folder.suffix.lower() in (".yaml", ".yml")
        hint = "a data.yaml is for --labels; name the folder of the images" if is_yaml else None
        raise DatasetError(f"{folder}: expected a folder of images, {found}", hint=hint)
    paths = sorted(filter(_is_image, folder.iterdir()))
    if not paths:
        raise DatasetError(
            f"{folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none", hint=_other_images(folder)
        )
    return paths


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _other_images(folder: Path) -> str | None:
    """Return the folders in it that have images (as those of an export), else what kinds of files it has."""
    below = itertools.islice(itertools.chain(folder.glob("*/*"), folder.glob("*/*/*")), _MOST_LOOKED_AT)
    if folders := sorted({str(path.parent) for path in below if _is_image(path)}):
        return f"name the folder of the images: {', '.join(folders[:_FOLDERS_TOLD])}"
    others = sorted({path.suffix for path in folder.glob("*.*") if not path.name.startswith(".")})
    return f"it has {', '.join(others)}: convert or rename what are images" if others else None


def passed_over(folder: Path) -> list[Path]:
    """Return what is directly in `folder`, by name, that `list_images` passes over; hidden files aside."""
    images = set(list_images(folder))
    return sorted(path for path in folder.iterdir() if path not in images and not path.name.startswith("."))


class StillSource:
    """Implements `edge.protocols.FrameSource`: one frame per image, in the order given, numbered from 1.

    Args:
        images: a folder, or files.
        read: gives the image of a file, uint8 (H, W, 3) RGB, for those who do not have it at its path.

    `current_path`: the file of the frame that was read last.
    """

    def __init__(
        self,
        stream: StreamId,
        images: Path | Sequence[Path],
        *,
        preprocess: Preprocess,
        read: Callable[[Path], NDArray[np.uint8]] = read_image,
    ) -> None:
        self.stream, self.is_live = stream, False  # images wait for their reader
        self._read = read
        self._images = images
        self._preprocess = preprocess
        self._paths: Sequence[Path] = ()
        self._next = 0
        self._is_closed = False
        self.current_path: Path | None = None

    def open(self) -> None:
        """Raises `SourceError` if there is no image."""
        try:
            self._paths = list_images(self._images) if isinstance(self._images, Path) else self._images
        except DatasetError as error:
            raise SourceError(error.problem, hint=error.hint, is_permanent=True) from error

    def read(self, timeout_s: float) -> Frame | None:
        """An image comes however short `timeout_s` is. Raises `SourceError` if a file is not an image."""
        if self._is_closed:
            raise SourceError(f"{self.stream}: read from a closed source")
        if self._next == len(self._paths):
            raise EndOfStream(f"{self.stream}: {self._next} images were read")
        path = self._paths[self._next]
        try:
            image = self._read(path)
        except DatasetError as error:
            raise SourceError(error.problem, hint=error.hint, is_permanent=True) from error
        self._next += 1
        self.current_path = path
        where = letterbox.fit(ImageSize(width=image.shape[1], height=image.shape[0]), self._preprocess)
        header = FrameHeader(
            stream=self.stream,
            frame=self._next,
            pts_ns=(self._next - 1) * 1_000_000_000,
            captured_at_ns=time.time_ns(),
            clock=ClockSource.FILE,
            source_size=where.source,
            read_at_ns=time.monotonic_ns(),
        )
        return Frame(header=header, letterbox=where, image=resize(image, where.fitted))

    def counts(self) -> SourceCounts:
        """No image is ever dropped."""
        return SourceCounts(decoded=self._next, dropped=dict[DropReason, int]())

    def close(self) -> None:
        self._is_closed = True
