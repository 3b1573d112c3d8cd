"""YOLO labels: one text file for each image, one `class cx cy w h` line for each object, all from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError
from edge.evaluate.truth import GroundTruth
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.types import ImageSize

__all__ = ["YoloLabels"]

_BOX_NUMBERS = 4
_POLYGON_NUMBERS = 6
_ROUNDING = 1e-3


class YoloLabels:
    """Reads a file when its image is asked for; a missing file means an image without objects, and is counted."""

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        if next(folder.glob("*.txt"), None) is None:
            raise DatasetError(f"{folder}: expected YOLO labels (one .txt for each image), found no .txt file")
        self._folder = folder
        self._labels = tuple(labels)
        self._unlabelled: list[str] = []

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Stems of images that have no file."""
        return tuple(self._unlabelled)

    @property
    def left_out(self) -> int:
        """None: a class that the model does not know is an error here."""
        return 0

    def truth(self, stem: str, size: ImageSize) -> GroundTruth:
        """Return what is on the image `stem` (see `edge.evaluate.truth.Labels`)."""
        path = self._folder / f"{stem}.txt"
        try:
            content = read_file(path, follows_links=True)
            if (found := mistaken(content)) is not None:
                raise DatasetError(f"{path}: expected lines of labels, this is {found.what}", hint=found.todo)
            lines = content.decode("utf-8").splitlines()
        except FileNotFoundError:
            self._unlabelled.append(stem)
            return GroundTruth.of([], [])
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path}: expected a readable text file: {error}") from error
        objects = [self._object(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
        scale = np.array([size.width, size.height] * 2, np.float64)
        return GroundTruth.of([(box * scale).tolist() for _, box in objects], [class_id for class_id, _ in objects])

    def _object(self, line: str, where: str) -> tuple[int, NDArray[np.float64]]:
        """Return the class and the corners, from 0 to 1, of one line."""
        try:
            class_number, *numbers = (float(word) for word in line.split())
        except ValueError as error:
            raise DatasetError(f'{where}: expected "class cx cy w h" in numbers, got {line.strip()!r}') from error
        if len(numbers) != _BOX_NUMBERS and (len(numbers) < _POLYGON_NUMBERS or len(numbers) % 2):
            raise DatasetError(
                f"{where}: expected a class and 4 numbers (or 3 and more points), got {len(numbers)} after the class"
            )
        if not all(-_ROUNDING <= number <= 1 + _ROUNDING for number in numbers):
            raise DatasetError(
                f"{where}: expected numbers from 0 to 1, got {line.strip()!r}", hint="divide pixels by the image's size"
            )
        return self._class_id(class_number, where), _corners(numbers, where)

    def _class_id(self, number: float, where: str) -> int:
        if not math.isfinite(number) or number != int(number) or not 0 <= number < len(self._labels):
            raise DatasetError(
                f"{where}: labels that do not fit the model: class {number:g}, "
                f"the model has {len(self._labels)} (0 to {len(self._labels) - 1})",
                hint="use labels made for this model",
            )
        return int(number)


def _corners(numbers: list[float], where: str) -> NDArray[np.float64]:
    values = np.array(numbers, np.float64)
    if len(values) == _BOX_NUMBERS:
        corners = np.concatenate([values[:2] - values[2:] / 2, values[:2] + values[2:] / 2])
    else:
        points = values.reshape(-1, 2)
        corners = np.concatenate([points.min(axis=0), points.max(axis=0)])
    if not (corners[2:] > corners[:2]).all():
        raise DatasetError(f"{where}: expected a box with an area, got width or height of 0")
    return corners
