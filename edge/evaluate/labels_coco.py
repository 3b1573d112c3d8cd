"""COCO labels: one `instances` JSON for all images, with category ids of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from edge.errors import DatasetError
from edge.evaluate.truth import GroundTruth
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.types import ImageSize

__all__ = ["CocoLabels", "class_id_from_category_id"]

_MOST_BYTES = 4 << 30  # ten times those of COCO's training images


@dataclass(slots=True)
class _Image:
    size: ImageSize | None
    xyxy: list[list[float]] = field(default_factory=list)
    class_id: list[int] = field(default_factory=list)
    is_crowd: list[bool] = field(default_factory=list)


class CocoLabels:
    """Reads the whole file at once. Categories that the model does not know are left out and counted."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self._path = path
        self._unlabelled: list[str] = []
        self._left_out = 0
        document = _document(path)
        try:
            self._images = self._read(document, labels)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DatasetError(
                f"{path}: expected COCO instances (images, annotations, categories): {reason}"
            ) from error

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Stems of images that the file does not list."""
        return tuple(self._unlabelled)

    @property
    def left_out(self) -> int:
        """Annotations of categories that the model does not know, in the whole file."""
        return self._left_out

    def truth(self, stem: str, size: ImageSize) -> GroundTruth:
        """Return what is on the image `stem` (see `edge.evaluate.truth.Labels`)."""
        image = self._images.get(stem)
        if image is None:
            self._unlabelled.append(stem)
            return GroundTruth.of([], [])
        if image.size not in (None, size):
            raise DatasetError(f"{self._path}: {stem} is labelled at {image.size}, the image is {size}")
        return GroundTruth.of(image.xyxy, image.class_id, image.is_crowd)

    def _read(self, document: Mapping[str, Any], labels: Sequence[str]) -> dict[str, _Image]:
        by_id: dict[int, _Image] = {}
        by_stem: dict[str, _Image] = {}
        for entry in document["images"]:
            stem = PurePosixPath(entry["file_name"]).stem
            if stem in by_stem:
                raise DatasetError(f'{self._path}: two images are called "{stem}", which tells them apart no more')
            by_id[entry["id"]] = by_stem[stem] = _Image(_size(entry))
        annotations = document["annotations"]
        used = {annotation["category_id"] for annotation in annotations}
        classes = class_id_from_category_id(document["categories"], labels, used=used, where=str(self._path))
        for annotation in annotations:
            self._add(annotation, by_id, classes)
        return by_stem

    def _add(self, annotation: Mapping[str, Any], images: Mapping[int, _Image], classes: Mapping[int, int]) -> None:
        class_id = classes.get(annotation["category_id"])
        image = images.get(annotation["image_id"])
        if image is None:
            raise DatasetError(f"{self._path}: annotation {annotation.get('id')} is of an image that is not listed")
        if class_id is None:
            self._left_out += 1
            return
        image.xyxy.append(self._corners(annotation))
        image.class_id.append(class_id)
        image.is_crowd.append(bool(annotation.get("iscrowd", 0)))

    def _corners(self, annotation: Mapping[str, Any]) -> list[float]:
        x, y, width, height = (float(number) for number in annotation["bbox"])
        if not all(map(math.isfinite, (x, y, width, height))) or width < 0 or height < 0:
            raise DatasetError(
                f"{self._path}: annotation {annotation.get('id')}: expected bbox [x, y, width, height] in pixels, "
                f"got {annotation['bbox']}"
            )
        return [x, y, x + width, y + height]


def class_id_from_category_id(
    categories: Sequence[Mapping[str, Any]], labels: Sequence[str], *, used: set[int], where: str
) -> dict[int, int]:
    """Return which class of the model each category is: by name where the names fit, else by order.

    Args:
        used: category ids that occur.

    Raises:
        DatasetError: if neither names nor number fit.
    """
    numbered = {_plain(label): class_id for class_id, label in enumerate(labels)}
    named = {c["id"]: numbered[_plain(c["name"])] for c in categories if _plain(c["name"]) in numbered}
    if len(set(named.values())) == len(labels) or (named and used <= set(named)):
        return named
    if len(categories) == len(labels):
        return {category_id: i for i, category_id in enumerate(sorted(c["id"] for c in categories))}
    unlisted = sorted(used - {c["id"] for c in categories})
    if unlisted:
        raise DatasetError(f"{where}: annotations are of category {unlisted[0]}, which the file does not list")
    missing = sorted(str(c["name"]) for c in categories if c["id"] in used - set(named))
    raise DatasetError(
        f"{where}: labels that do not fit the model: it has {len(labels)} classes, the file {len(categories)}; "
        f"unknown to the model: {', '.join(missing[:5])}",
        hint="use labels made for this model, or name the model's labels as the file does",
    )


def _plain(name: str) -> str:
    return " ".join(str(name).casefold().split())


def _size(entry: Mapping[str, Any]) -> ImageSize | None:
    width, height = entry.get("width"), entry.get("height")
    return ImageSize(width=width, height=height) if width and height else None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        content = read_file(path, most_bytes=_MOST_BYTES, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise DatasetError(f"{path}: expected a COCO JSON file, this is {found.what}", hint=found.todo)
        document = json.loads(content)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DatasetError(f"{path}: expected a COCO JSON file: {error}") from error
    if not isinstance(document, dict):
        raise DatasetError(f"{path}: expected COCO instances (an object), got {type(document).__name__}")
    return document
