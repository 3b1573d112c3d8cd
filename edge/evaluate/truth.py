"""What is really on an image, and where that is read from: `open_labels` takes a YOLO folder or a COCO file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge.types import ImageSize

__all__ = ["GroundTruth", "Labels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """Labelled boxes of one image.

    Attributes:
        xyxy: float64 (N, 4), pixels of the source image.
        class_id: int32 (N,), index of the model's label.
        is_crowd: bool (N,), a region of many objects: detections inside count neither for nor against.
    """

    xyxy: NDArray[np.float64]
    class_id: NDArray[np.int32]
    is_crowd: NDArray[np.bool_]

    def __post_init__(self) -> None:
        count = len(self.class_id)
        if self.xyxy.shape != (count, 4) or self.is_crowd.shape != (count,):
            raise ValueError(
                f"expected xyxy (N, 4), class_id (N,), is_crowd (N,); "
                f"got {self.xyxy.shape}, {self.class_id.shape}, {self.is_crowd.shape}"
            )

    def __len__(self) -> int:
        return len(self.class_id)

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


class Labels(Protocol):
    """Labels of many images, found by the stem of the image's file name."""

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Stems of images that were asked for and have no labels at all: taken as empty of objects."""
        ...

    @property
    def left_out(self) -> int:
        """Labelled boxes of classes that the model does not know: they do not count against it."""
        ...

    def truth(self, stem: str, size: ImageSize) -> GroundTruth:
        """Return what is on the image `stem`, which is of `size` pixels.

        Raises:
            DatasetError: if its labels are malformed, or do not fit the model or the image.
        """
        ...
