"""Labels on disk, whichever of the usual kinds they are.

YOLO: one text file for each image, one line for each object, `class cx cy w h` or a polygon, all from 0 to 1; numbers
behind a box are passed over (`columns_of`). COCO: one file of instances.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError
from edge.evaluate.class_names import ClassMap, LabelNames, find_label_names, label_folder, names_of_yaml, unlisted
from edge.evaluate.truth import GroundTruth, Labels
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.types import ImageSize

__all__ = ["YoloLabels", "open_labels"]

# What the numbers behind a box are, in YOLO labels: confidence, track, keypoints; or all of them are a polygon.
#
# A line does not say. Told by their count where it can be only one, else by all lines of the folder, else by a
# data.yaml. Source: Ultralytics, dataset formats of detect, segment, pose and OBB, `Results.save_txt`; CVAT and
# Roboflow exports.

BOX_NUMBERS = 4
ROUNDING = 1e-3
_POLYGON_NUMBERS = 6
_TRACK_NUMBERS = 6
_CORNERS_NUMBERS = 8
_BORDER = 0.01  # of the image, by which a box may reach beyond it
_NEARLY_ALL = 0.9
_MOST = 0.5
_ENOUGH_ROWS = 5

Rows = NDArray[np.float64]


class Columns(Enum):
    """Meaning of the numbers of a line behind its class."""

    BOX = "a box, and more that does not matter here"
    POLYGON = "points around an object"
    UNKNOWN = "neither"
    AMBIGUOUS = "a box with keypoints, or a polygon"


def columns_of(count: int, rows: Mapping[int, Rows], *, has_no_keypoints: bool) -> Columns:
    """Return what lines of `count` numbers are.

    `count`: of numbers behind the class. `rows`: all lines that are known, (N, count) by their count.
    `has_no_keypoints`: a data.yaml says so.
    """
    own = rows[count]
    if count == BOX_NUMBERS:
        return Columns.BOX
    if count < BOX_NUMBERS:
        return Columns.UNKNOWN
    pairs = [other for other in rows if other % 2 == 0 and other >= _POLYGON_NUMBERS]
    if count % 2:
        has_polygons = any(not _has_marks(rows[other]) for other in pairs)
        return Columns.BOX if _has_marks(own) and not has_polygons else Columns.UNKNOWN
    if len(pairs) == 1 and _has_marks(own):
        return Columns.BOX
    is_told = len(pairs) > 1 or has_no_keypoints or _are_parallelograms(own)
    return Columns.POLYGON if is_told or _share_of_boxes(own) < _NEARLY_ALL else Columns.AMBIGUOUS


def _has_marks(rows: Rows) -> bool:
    """Return whether columns behind a box are such as no polygon has: whole numbers, or one too many for pairs."""
    more = rows[:, BOX_NUMBERS:]
    is_share, is_whole = (more >= 0) & (more <= 1), (more >= 0) & (more == np.round(more))
    count = more.shape[1]
    if count == 1:
        return bool(is_share.all() or is_whole.all())  # a confidence, or the number of a track
    if count == _TRACK_NUMBERS - BOX_NUMBERS:
        is_sure = len(rows) >= _ENOUGH_ROWS or bool((more > 1).any())
        is_track = any((is_share[:, one] & is_whole[:, 1 - one]).all() for one in (0, 1))
        return is_sure and is_track
    if count % 3 or _share_of_boxes(rows) < _MOST:
        return False
    is_odd = bool(count % 2)  # then keypoints may have a confidence each, as predictions have
    return bool((np.isin(more[:, 2::3], (0, 1, 2)) | (is_odd & is_share[:, 2::3])).all())


def _share_of_boxes(rows: Rows) -> float:
    """Return how many of the rows may begin with a box: inside the image, with an area."""
    centre, size = rows[:, :2], rows[:, 2:BOX_NUMBERS]
    is_inside = (centre - size / 2 >= -_BORDER) & (centre + size / 2 <= 1 + _BORDER)
    return float((is_inside & (size > 0)).all(axis=1).mean())


def _are_parallelograms(rows: Rows) -> bool:
    """Return whether all are oriented boxes, by their corners."""
    if rows.shape[1] != _CORNERS_NUMBERS:
        return False
    corners = rows.reshape(-1, 4, 2)
    return bool((abs(corners[:, 0] + corners[:, 2] - corners[:, 1] - corners[:, 3]) < ROUNDING).all())


_SURVEYED_FILES = 1000


class YoloLabels(Labels):
    """Reads a file when its image is asked for; a missing file means an image without objects, and is counted.

    `folder`: of the text files. `labels`: of the model. `names`: of the classes, as they are numbered in the files;
    None: as the model numbers them.
    """

    def __init__(self, folder: Path, labels: Sequence[str], names: LabelNames | None) -> None:
        self._files = sorted(path for path in folder.glob("*.txt") if names is None or path.name != names.path.name)
        if not self._files:
            raise DatasetError(
                f"{folder}: expected YOLO labels (one .txt for each image), found no .txt file",
                hint=_other_labels(folder),
            )
        super().__init__(folder)
        self._labels = tuple(labels)
        self._names = names
        self._classes = None if names is None else ClassMap(names.names, labels, where=str(names.path))
        if self._classes is not None:
            self.classes_by, self._of_classes = self._classes.found_by, self._classes.notes
        self._columns: dict[int, Columns] = {}

    def _read_truth(self, stem: str, size: ImageSize) -> GroundTruth:
        path = self.path / f"{stem}.txt"
        try:
            lines = _lines(path)
        except FileNotFoundError:
            self._unlabelled.append(stem)
            return GroundTruth.of([], [])
        objects = [self._object(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
        if not objects:
            self._blank.add(stem)
        known = [(box, class_id) for class_id, box in objects if class_id is not None]
        self.left_out += len(objects) - len(known)
        scale = np.array([size.width, size.height] * 2, np.float64)
        return GroundTruth.of([(box * scale).tolist() for box, _ in known], [class_id for _, class_id in known])

    def _object(self, line: str, where: str) -> tuple[int | None, NDArray[np.float64]]:
        """Return the class, None if the model does not know it, and the corners, from 0 to 1, of one line."""
        try:
            class_number, *numbers = (float(word) for word in line.split())
        except ValueError as error:
            raise DatasetError(f'{where}: expected "class cx cy w h" in numbers, got {line.strip()!r}') from error
        if self._columns_of(numbers, where) is Columns.BOX:
            numbers = numbers[:BOX_NUMBERS]
        if not all(-ROUNDING <= number <= 1 + ROUNDING for number in numbers):
            hint = "divide pixels by the image's size" if max(numbers) > 1 + ROUNDING else None
            raise DatasetError(f"{where}: expected numbers from 0 to 1, got {line.strip()!r}", hint=hint)
        return self._class_id(class_number, where), _corners(numbers, where)

    def _columns_of(self, numbers: list[float], where: str) -> Columns:
        count, keypoints = len(numbers), 0 if self._names is None else self._names.keypoint_numbers
        if keypoints and count in (BOX_NUMBERS, BOX_NUMBERS + keypoints):
            return Columns.BOX
        if count not in self._columns:
            rows = {BOX_NUMBERS: np.empty((0, BOX_NUMBERS))} if count == BOX_NUMBERS else dict(self._rows)
            own = rows.get(count, np.empty((0, count)))
            rows[count] = np.vstack((own, numbers))
            has_none = self._names is not None and self._names.is_yaml and not keypoints
            self._columns[count] = columns_of(count, rows, has_no_keypoints=has_none)
        found = self._columns[count]
        if found is Columns.AMBIGUOUS:
            raise DatasetError(
                f"{where}: {count} numbers after the class may be a box with keypoints or a polygon",
                hint="say which in a data.yaml beside the labels: kpt_shape: [points, 2 or 3], or names without it",
            )
        if found is Columns.UNKNOWN or (keypoints and count != BOX_NUMBERS):
            pose = f" and {keypoints} of keypoints" if keypoints else ""
            raise DatasetError(
                f"{where}: expected a class and 4 numbers{pose} (or 3 and more points), got {count} after the class"
            )
        return found

    @cached_property
    def _rows(self) -> dict[int, NDArray[np.float64]]:
        """The numbers of all lines that have more than a box, by their count."""
        rows: dict[int, list[list[float]]] = {}
        for path in self._files[:_SURVEYED_FILES]:
            with contextlib.suppress(DatasetError, ValueError):  # it is refused when its image is asked for
                for line in _lines(path):
                    numbers = [float(word) for word in line.split()[1:]]
                    if len(numbers) > BOX_NUMBERS:
                        rows.setdefault(len(numbers), []).append(numbers)
        return {count: np.array(own) for count, own in rows.items()}

    def _class_id(self, number: float, where: str) -> int | None:
        is_whole = math.isfinite(number) and number == int(number)
        if is_whole and self._classes is not None:
            return self._classes[int(number)]
        if not is_whole or not 0 <= number < len(self._labels):
            raise DatasetError(
                f"{where}: labels that do not fit the model: class {number:g}, "
                f"the model has {len(self._labels)} (0 to {len(self._labels) - 1})",
                hint="use labels made for this model, or put their names beside them: classes.txt or data.yaml",
            )
        return int(number)


def _other_labels(folder: Path) -> str | None:
    if (folder / "labels").is_dir():
        return f"name the folder in it: {folder / 'labels'}"
    others = sorted({path.suffix for path in folder.glob("*.*")} - {".txt"})
    return f"it has {', '.join(others)}: export the labels as YOLO, or name a COCO .json" if others else None


def _lines(path: Path) -> list[str]:
    try:
        content = read_file(path, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise DatasetError(f"{path}: expected lines of labels, this is {found.what}", hint=found.todo)
        return content.decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}", hint="give the path of labels") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: expected lines of labels in UTF-8, byte {error.start} is none") from error


def _corners(numbers: list[float], where: str) -> NDArray[np.float64]:
    values = np.array(numbers, np.float64)
    if len(values) == BOX_NUMBERS:
        corners = np.concatenate([values[:2] - values[2:] / 2, values[:2] + values[2:] / 2])
    else:
        points = values.reshape(-1, 2)
        corners = np.concatenate([points.min(axis=0), points.max(axis=0)])
    low, high = corners[:2], corners[2:]
    if not (low < high).all():
        raise DatasetError(f"{where}: expected a box with an area, got width or height of 0")
    if not ((low < 1) & (high > 0)).all():
        raise DatasetError(
            f"{where}: expected a box in the image, got one beside it: corners {corners.round(4).tolist()}"
        )
    return corners


_MOST_BYTES = 4 << 30  # ten times those of COCO's training images


@dataclass(slots=True)
class _Image:
    size: ImageSize | None
    xyxy: list[list[float]] = field(default_factory=list)
    class_id: list[int] = field(default_factory=list)
    is_crowd: list[bool] = field(default_factory=list)
    ids: list[object] = field(default_factory=list)  # of the annotations, for errors


class CocoLabels(Labels):
    """Reads the whole file at once. Categories that the model does not know are left out and counted."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        super().__init__(path)
        self._at = ""  # the entry that is read, for errors
        document = _document(path)
        try:
            self._images = self._read(document, labels)
        except KeyError as error:
            raise DatasetError(f"{path}: expected COCO instances, got {self._at} without {error}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise DatasetError(
                f"{path}: expected COCO instances, got {self._at} with a value of another kind"
            ) from error

    def _read_truth(self, stem: str, size: ImageSize) -> GroundTruth:
        image = self._images.get(stem)
        if image is None:
            self._unlabelled.append(stem)
            return GroundTruth.of([], [])
        if image.size not in (None, size):
            raise DatasetError(f"{self.path}: {stem} is labelled at {image.size}, the image is {size}")
        for annotation_id, xyxy in zip(image.ids, image.xyxy, strict=True):
            if not _fits(xyxy, size):
                raise DatasetError(
                    f"{self.path}: annotation {annotation_id}: expected a box with an area within {stem} ({size}), got "
                    f"corners {[round(number, 1) for number in xyxy]}",
                    hint="bbox is [x, y, width, height] in pixels of the image",
                )
        return GroundTruth.of(image.xyxy, image.class_id, image.is_crowd)

    def _read(self, document: Mapping[str, Any], labels: Sequence[str]) -> dict[str, _Image]:
        stem_of: dict[int, str] = {}
        by_stem: dict[str, _Image] = {}
        for entry in self._each(document, "images"):
            stem = PurePosixPath(entry["file_name"].replace("\\", "/")).stem
            if stem in by_stem:
                raise DatasetError(f'{self.path}: two images are called "{stem}", which tells them apart no more')
            if (other := stem_of.setdefault(entry["id"], stem)) != stem:
                raise DatasetError(
                    f'{self.path}: the images "{other}" and "{stem}" have the same id ({entry["id"]}), '
                    "which tells them apart no more",
                    hint="give each image an id of its own, where the file was merged from several, too",
                )
            by_stem[stem] = _Image(_size(entry))
        used = {annotation["category_id"] for annotation in self._each(document, "annotations")}
        names = {category["id"]: str(category["name"]) for category in self._each(document, "categories")}
        if len(names) < len(document["categories"]):
            raise DatasetError(f"{self.path}: two categories have the same id, which tells them apart no more")
        self._classes = ClassMap(names, labels, used=used, where=str(self.path))
        self.classes_by, self._of_classes = self._classes.found_by, self._classes.notes
        images = {image_id: by_stem[stem] for image_id, stem in stem_of.items()}
        for annotation in self._each(document, "annotations"):
            self._add(annotation, images)
        return by_stem

    def _each(self, document: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
        self._at = "a file"
        for number, entry in enumerate(document[key]):
            self._at = f"{key}[{number}]"  # for an entry that is no object
            self._at += f" (id {entry.get('id')})"
            yield entry

    def _add(self, annotation: Mapping[str, Any], images: Mapping[int, _Image]) -> None:
        class_id = self._classes[annotation["category_id"]]
        image = images.get(annotation["image_id"])
        if image is None:
            problem = unlisted(f"annotation {annotation.get('id')} is of image", annotation["image_id"], images)
            raise DatasetError(f"{self.path}: {problem}")
        if class_id is None:
            self.left_out += 1
            return
        image.xyxy.append(self._corners(annotation))
        image.class_id.append(class_id)
        image.is_crowd.append(bool(annotation.get("iscrowd", 0)))
        image.ids.append(annotation.get("id"))

    def _corners(self, annotation: Mapping[str, Any]) -> list[float]:
        bbox = annotation["bbox"]
        try:
            x, y, width, height = map(float, bbox)
        except (TypeError, ValueError):
            width = height = math.nan
        if not (width >= 0 and height >= 0 and all(map(math.isfinite, (x, y, width, height)))):
            raise DatasetError(
                f"{self.path}: annotation {annotation.get('id')}: expected bbox [x, y, width, height] in pixels, "
                f"got {bbox}"
            )
        return [x, y, x + width, y + height]


def _fits(xyxy: Sequence[float], size: ImageSize) -> bool:
    """Return whether a box has an area in the image, its centre, too, and is no larger, as in YOLO labels; save
    rounding.
    """
    left, top, right, bottom = xyxy
    return (max(left, 0) < min(right, size.width) and max(top, 0) < min(bottom, size.height)) and all(
        -spare <= number <= side + spare
        for side, low, high in ((size.width, left, right), (size.height, top, bottom))
        for spare in (max(2.0, ROUNDING * side),)
        for number in ((low + high) / 2, high - low)
    )


def _size(entry: Mapping[str, Any]) -> ImageSize | None:
    width, height = entry.get("width"), entry.get("height")
    return ImageSize(width=width, height=height) if width and height else None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        content = read_file(path, most_bytes=_MOST_BYTES, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise DatasetError(f"{path}: expected a COCO JSON file, this is {found.what}", hint=found.todo)
        document = json.loads(content)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}", hint="give the path of labels") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected a COCO JSON file: {error}") from error
    if not isinstance(document, dict):
        raise DatasetError(f"{path}: expected COCO instances (an object), got {type(document).__name__}")
    return document


def open_labels(path: Path, labels: Sequence[str], *, images: Path) -> Labels:
    """Return the labels at `path`: a folder of YOLO text files, a data.yaml, or a COCO instances file.

    `path`: of the labels; a data.yaml means the folder `labels` that belongs to `images`. `labels`: of the model; a
    class that is not among them is an error.
    Raises `DatasetError` if there is nothing of any kind, or it does not fit `labels`.
    """
    if path.is_dir():
        return YoloLabels(path, labels, find_label_names(path))
    if path.is_file() and path.suffix.lower() in (".yaml", ".yml"):
        return YoloLabels(label_folder(images), labels, names_of_yaml(path))
    if path.is_file() and path.suffix.lower() == ".json":
        return CocoLabels(path, labels)
    raise DatasetError(
        f"{path}: expected a folder of YOLO .txt files, a data.yaml or a COCO .json file, "
        + ("found none of them" if path.exists() else "there is neither file nor folder of that name"),
        hint="export labels of another kind as YOLO or COCO" if path.exists() else None,
    )
