"""Labels on disk, whichever of the two usual kinds they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge.errors import DatasetError
from edge.evaluate.labels_coco import CocoLabels
from edge.evaluate.labels_yolo import YoloLabels
from edge.evaluate.truth import Labels

__all__ = ["open_labels"]


def open_labels(path: Path, labels: Sequence[str]) -> Labels:
    """Return the labels at `path`: a folder of YOLO text files, or a COCO instances file.

    Args:
        labels: of the model; a class that is not among them is an error.

    Raises:
        DatasetError: if there is nothing of either kind, or it does not fit `labels`.
    """
    if path.is_dir():
        return YoloLabels(path, labels)
    if path.is_file() and path.suffix == ".json":
        return CocoLabels(path, labels)
    raise DatasetError(f"{path}: expected a folder of YOLO .txt files or a COCO .json file, found neither")
