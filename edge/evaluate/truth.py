"""Ground truth of images, apart from the format of the label files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.types import ImageSize

__all__ = ["GroundTruth", "Labels"]

_BACKGROUND_SHARE = 0.1  # as many as Ultralytics advises to have


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """Labelled boxes of one image."""

    xyxy: NDArray[np.float64]  # float64 (N, 4), pixels of the source image
    class_id: NDArray[np.int32]  # int32 (N,), index of the model's label
    is_crowd: NDArray[np.bool_]  # bool (N,), a region of many objects: detections inside count neither for nor against

    def __post_init__(self) -> None:
        count = len(self.class_id)
        if self.xyxy.shape != (count, 4) or self.is_crowd.shape != (count,):
            raise ValueError(
                f"expected xyxy (N, 4), class_id (N,), is_crowd (N,); "
                f"got {self.xyxy.shape}, {self.class_id.shape}, {self.is_crowd.shape}"
            )

    def __len__(self) -> int:
        return len(self.class_id)

    @property
    def repeated(self) -> int:
        """How many boxes are of the same class, and at the very same place, as another one."""
        rows = np.column_stack((self.xyxy, self.class_id, self.is_crowd))
        return len(rows) - len(np.unique(rows, axis=0))

    @classmethod
    def of(
        cls, xyxy: Sequence[Sequence[float]], class_id: Sequence[int], is_crowd: Sequence[bool] | None = None
    ) -> GroundTruth:
        """Return ground truth from plain lists; nothing is a crowd unless it is said."""
        return cls(
            xyxy=np.asarray(xyxy, np.float64).reshape(-1, 4),
            class_id=np.asarray(class_id, np.int32),
            is_crowd=np.asarray([False] * len(class_id) if is_crowd is None else is_crowd, np.bool_),
        )


class Labels(ABC):
    """Labels of many images, found by the stem of the image's file name.

    `classes_by`: how classes are found, by `name`, by `order`, or by the model's own `number`. `left_out`: labelled
    boxes of classes that the model does not know: they do not count against it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        self.classes_by, self._of_classes = "number", tuple[str, ...]()
        self._unlabelled: list[str] = []
        self._repeated: dict[str, int] = {}
        self._asked, self._blank = set[str](), set[str]()

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Stems of images that were asked for and have no labels at all: taken as empty of objects."""
        return tuple(self._unlabelled)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what is not sure, of the images that were asked for."""
        told = list(self._of_classes)
        if repeated := sum(self._repeated.values()):
            said = f"boxes the same as another one of their image: {repeated} (on images: {len(self._repeated)})"
            told.append(f"{self.path}: {said}; nothing is found twice, so remove what was written twice")
        if len(self._blank) > _BACKGROUND_SHARE * len(self._asked):
            said = f"{len(self._blank)} of {len(self._asked)} images have an empty label file"
            told.append(f"{self.path}: {said}: what is found there counts as wrong: label what they show")
        return tuple(told)

    def truth(self, stem: str, size: ImageSize) -> GroundTruth:
        """Return what is on the image `stem`, which is of `size` pixels.
        Raises `DatasetError` if its labels are malformed, or do not fit the model or the image.
        """
        self._asked.add(stem)
        found = self._read_truth(stem, size)
        if found.repeated:
            self._repeated[stem] = found.repeated
        return found

    @abstractmethod
    def _read_truth(self, stem: str, size: ImageSize) -> GroundTruth: ...
