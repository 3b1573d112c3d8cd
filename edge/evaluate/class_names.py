"""Which class of a model each number in labels is: by name, or by order where names cannot mislead.

Names stand beside YOLO labels: lists of LabelImg, Darknet, CVAT and Roboflow, notes.json of Label Studio, data.yaml of
Ultralytics and Roboflow. The nearest folder counts: that of the labels, then the two above it.
Whether the numbers mean that shows what is detected where each class is labelled.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.config.yaml_file import read_yaml
from edge.document import Document
from edge.errors import ConfigError, DatasetError, EdgeError
from edge.evaluate.coco_map import iou_of_xyxy
from edge.evaluate.truth import GroundTruth
from edge.reading import json_object, read_file
from edge.types import Detections

__all__ = [
    "ClassBlind",
    "ClassMap",
    "LabelNames",
    "find_label_names",
    "label_folder",
    "listed",
    "names_of_yaml",
    "unlisted",
]

_LISTED = 10

# COCO's names, plain, by those of PASCAL VOC, Darknet and others.
_COCO_NAME = {
    "aeroplane": "airplane",
    "doughnut": "donut",
    "hairdryer": "hairdrier",
    "mobilephone": "cellphone",
    "motorbike": "motorcycle",
    "sofa": "couch",
    "television": "tv",
    "tvmonitor": "tv",
}


class ClassMap:
    """The classes of numbered names. Names are compared without case, blanks, `_` and `-`; synonyms of COCO's count.

    A name that the model does not know is left out where all classes of the model have names in the labels. Otherwise
    numbers go by order, if there are as many names as classes and each known name stands where the model has it.

    `names`: by number, as labels give them. `labels`: of the model. `used`: numbers that are sure to occur. `where`:
    the file of the names, for errors. `found_by`: `name`, or `order` where some names are unknown. `notes`: what is not
    sure then. Raises `DatasetError` if no name is known and order says nothing, or as `__getitem__` of one in `used`.
    """

    def __init__(
        self, names: Mapping[int, str], labels: Sequence[str], *, used: Collection[int] = (), where: str
    ) -> None:
        self._names, self._labels, self._where = names, labels, where
        self._known = _by_name(names, labels)
        self._is_whole = len(set(self._known.values())) == len(labels)
        place = {number: rank for rank, number in enumerate(sorted(names))}
        fits = len(names) == len(labels) and all(place[n] == class_id for n, class_id in self._known.items())
        unknown = names.keys() - self._known.keys()
        self.found_by, self.notes = "name", tuple[str, ...]()
        if fits and unknown:
            self._known, self.found_by = place, "order"
            self.notes = (
                f"{where}: {len(unknown)} of {len(names)} class names are {self._why(unknown)} (classes go by order)",
            )
        self._require(used)
        if not self._known:
            raise self._misfit(names)

    def __getitem__(self, number: int) -> int | None:
        """Return the class of the model; None where the model does not know it.
        Raises `DatasetError` if the number has no name, or could be a class of the model under another name.
        """
        if number not in self._known:
            self._require((number,))
        return self._known.get(number)

    def _require(self, used: Collection[int]) -> None:
        if others := sorted(set(used) - set(self._names)):
            raise DatasetError(f"{self._where}: {unlisted('labels are of category', others[0], self._names)}")
        unknown = set(used) - set(self._known)
        if unknown and not self._is_whole:
            raise self._misfit(unknown)

    def _misfit(self, unknown: Collection[int]) -> DatasetError:
        taken = set(self._known.values())
        free = [label for class_id, label in enumerate(self._labels) if class_id not in taken]
        return DatasetError(
            f"{self._where}: labels that do not fit the model: it has {len(self._labels)} classes, the file "
            f"{len(self._names)}; {self._why(unknown)}",
            hint=f"name them as the model does, which also has: {listed(free)}; or use labels made for this model",
        )

    def _why(self, unknown: Collection[int]) -> str:
        names = sorted({str(self._names[number]) for number in unknown})
        common = [_common(label) for label in self._labels]
        several = [name for name in names if common.count(_common(name)) > 1]
        reasons = {
            "unknown to the model": [name for name in names if name not in several],
            "of several of its classes": several,
        }
        return "; ".join(f"{reason}: {listed(those)}" for reason, those in reasons.items() if those)


def unlisted(kind: str, found: object, listed: Iterable[object]) -> str:
    """Return that a file has no `kind` of the id `found`, and whether only the type differs."""
    alike = next((f", only {one!r}: text and numbers differ" for one in listed if str(one) == str(found)), "")
    return f"{kind} {found!r}, which the file does not list{alike}"


def _by_name(names: Mapping[int, str], labels: Sequence[str]) -> dict[int, int]:
    """Return the class of each name that the model knows; the closer spelling goes first.

    A name that both have equally often goes by order among its own.
    """
    known: dict[int, int] = {}
    for name in filter(_plain, set(names.values()).intersection(labels)):
        numbers = sorted(number for number, one in names.items() if one == name)
        classes = [class_id for class_id, label in enumerate(labels) if label == name]
        if len(numbers) == len(classes):
            known.update(zip(numbers, classes, strict=True))
    for key in (_spoken, _plain, _common):
        of_key: dict[str, list[int]] = {}
        for class_id, label in enumerate(labels):
            of_key.setdefault(key(label), []).append(class_id)
        for number, name in names.items():
            same = of_key.get(key(name), []) if _plain(name) else []
            if number not in known and len(same) == 1:
                known[number] = same[0]
    return known


def _spoken(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", str(name)).casefold().split())


def _plain(name: str) -> str:
    return "".join(_spoken(name).replace("_", " ").replace("-", " ").split())


def _common(name: str) -> str:
    return _COCO_NAME.get(_plain(name), _plain(name))


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


_LISTS = ("classes.txt", "predefined_classes.txt", "labels.txt", "*.names", "_darknet.labels")
_FOLDERS = 3
_SPLITS = ("train", "val", "valid", "test")
_HAS_NAMES = re.compile(rb"^(?:\xef\xbb\xbf)?names\s*:", re.MULTILINE)  # Windows editors put a mark before


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNames:
    """Names of the numbers in labels, as a file states them."""

    path: Path
    names: Mapping[int, str]  # by number
    # whether it also says what a line of labels has: a data.yaml without `kpt_shape` has no keypoints
    is_yaml: bool = False
    keypoint_numbers: int = 0  # how many numbers the keypoints of an object take; 0 without keypoints
    root: Path  # of the data set
    folders: tuple[Path, ...] = ()  # of labels that it names


def find_label_names(folder: Path) -> LabelNames | None:
    """Return the names of the labels in `folder`; None where there are none.
    Raises `DatasetError` if a file of names cannot be used, or two in the same folder differ.
    """
    folder = _absolute(folder)
    for place in (folder, *folder.parents)[:_FOLDERS]:
        found = [names for names in _names_in(place) if folder in names.folders or folder.is_relative_to(names.root)]
        found = [names for names in found if folder in names.folders] or found
        if other := next((one for one in found if one.names != found[0].names), None):
            raise DatasetError(
                f"{place}: {found[0].path.name} and {other.path.name} name the classes differently",
                hint="remove the one that is not of these labels",
            )
        if found:
            return next((names for names in found if names.is_yaml), found[0])
    return None


def label_folder(images: Path) -> Path:
    """Return the folder of the labels of a folder of images: `labels` in place of the last `images` in its path."""
    parts = list(_absolute(images).parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts)


def names_of_yaml(path: Path) -> LabelNames:
    """Raise `DatasetError` if it is no data.yaml."""
    try:
        document = read_yaml(path, kind="a data.yaml with the names of the classes")
        content = document.content
        if not isinstance(content, dict) or not isinstance(content.get("names"), (dict, list)):
            raise DatasetError(f"{path}: expected a data.yaml with the names of the classes (names: ...)")
        names = _numbered(document)
        if len(names) != int(content.get("nc", len(names))):
            raise DatasetError(f"{path}: states {content['nc']} classes (nc) and names {len(names)}")
        shape = content.get("kpt_shape") or (0, 0)
        return LabelNames(
            path=path,
            names=names,
            is_yaml=True,
            keypoint_numbers=int(shape[0]) * int(shape[1]),
            root=next(base for base in _bases(path, content) if base.is_dir()),
            folders=tuple(_folders(path, content)),
        )
    except EdgeError as error:
        raise DatasetError(error.problem, hint=error.hint) from error
    except (TypeError, ValueError, LookupError) as error:
        raise DatasetError(f"{path}: expected names by number, and kpt_shape [points, 2 or 3]: {error}") from error


def _names_in(place: Path) -> Iterator[LabelNames]:
    for path in sorted({path for pattern in _LISTS for path in place.glob(pattern) if path.is_file()}):
        if path.name.startswith("."):  # macOS leaves ._obj.names
            continue
        if names := _of_list(path):
            yield LabelNames(path=path, names=names, root=place)
    if (place / "notes.json").is_file():
        yield LabelNames(path=place / "notes.json", names=_of_notes(place / "notes.json"), root=place)
    for path in sorted((*place.glob("*.yaml"), *place.glob("*.yml"))):
        if _may_have_names(path):
            yield names_of_yaml(path)


def _may_have_names(path: Path) -> bool:
    """Return whether to read a YAML file: others of any kind may stand beside a data set."""
    try:
        content = read_file(path, follows_links=True)
        return content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or bool(_HAS_NAMES.search(content))
    except OSError:
        return False


def _of_list(path: Path) -> dict[int, str]:
    """Return one name for each line; none of a file that has the labels of an image."""
    try:
        lines = _content(path).decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: expected one class name for each line, in UTF-8, byte {error.start} is none"
        ) from error
    if all(re.fullmatch(r"\s*\d+(\s+[-+.\deE]+){4,}\s*|\s*", line) for line in lines):
        return {}
    return {number: line.strip() for number, line in enumerate(lines)}


def _of_notes(path: Path) -> dict[int, str]:
    try:
        return {int(one["id"]): str(one["name"]) for one in json_object(_content(path))["categories"]}
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path}: expected categories with id and name: {error}") from error


def _numbered(document: Document[ConfigError]) -> dict[int, str]:
    names = document.content["names"]
    pairs = list(names.items() if isinstance(names, dict) else enumerate(names))
    for number, name in pairs:
        if isinstance(name, bool) or not isinstance(name, (str, int, float)):  # YAML takes no, yes, on, ~ for those
            raise document.error(("names", number), f"got {name}, expected a name; put it in quotes")
    return {int(number): str(name) for number, name in pairs}


def _bases(path: Path, content: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return what paths in a data.yaml may begin at: its own `path`, of whatever machine, and where it is."""
    own = _absolute(path.parent)
    return _absolute(own / str(content.get("path") or ".")), own


def _folders(path: Path, content: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the folders of labels that belong to those of images that exist; Roboflow's begin with a wrong `..`."""
    for split in (one for name in _SPLITS for one in _listed(content.get(name))):
        bases = _bases(path, content)
        for folder in (*(base / split for base in bases), bases[-1] / split.removeprefix("../")):
            if folder.is_dir():
                yield label_folder(folder)
                break


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # links stay: labels stand beside the link to the images


def _content(path: Path) -> bytes:
    try:
        return read_file(path, follows_links=True)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error


_SURE_SCORE = 0.25
_SAME_IOU = 0.5
_FEWEST = 3  # boxes of a class that tell what it is taken for
_MOST = 0.75  # of them
_FEWEST_OF_CIRCLE = 4
_ENOUGH_WRONG = 8
_SHARE = 0.5  # of all boxes that meet a detection: more are no confusion of a model
_FEW_MEET = 0.1
_ENOUGH = 20


_OR_INT8 = " Or INT8 by this table finds little: evaluate without it, in float"


class ClassBlind:
    """Counts, image by image, labelled boxes that meet a sure detection, whatever its class."""

    def __init__(self, labels: Sequence[str], *, is_int8: bool = False) -> None:
        self._labels, self._is_int8 = labels, is_int8
        self._boxes = 0
        self._met: Counter[tuple[int, int]] = Counter()

    def add(self, detections: Detections, truth: GroundTruth) -> None:
        single, sure = ~truth.is_crowd, detections.score >= _SURE_SCORE
        self._boxes += int(single.sum())
        boxes, class_id = truth.xyxy[single], truth.class_id[single]
        found = detections.xyxy[sure].astype(np.float64)
        if not len(found) or not len(boxes):
            return
        iou = iou_of_xyxy(found, boxes, is_crowd=np.zeros(len(boxes), np.bool_))
        own = detections.class_id[sure][:, None] == class_id[None]
        # Where two classes are detected at one place, the one that the label says counts: a doubt is no contradiction.
        best = np.where(iou >= _SAME_IOU, iou + own, 0.0).argmax(axis=0)
        for box in np.flatnonzero((iou >= _SAME_IOU).any(axis=0)).tolist():
            self._met[int(class_id[box]), int(detections.class_id[sure][best[box]])] += 1

    def require_same_classes(self, where: str) -> None:
        """Refuse labels whose classes are permuted: most boxes are detected as another class, or two change places.
        Raises `DatasetError` if so, with the permutation as it looks.
        """
        taken, places = self._taken_for(), self._changed_places()
        wrong = sum(count for _, count, _ in taken.values())
        if places or (wrong >= _ENOUGH_WRONG and wrong > _SHARE * sum(self._met.values())):
            looks = [
                f"{self._labels[one]} is detected as {self._labels[other]} ({count} of {total} boxes)"
                for one, (other, count, total) in {**places, **taken}.items()
            ]
            raise DatasetError(
                f"{where}: classes are permuted: {listed(looks)}",
                hint="put the names of the labels' classes beside them (classes.txt, data.yaml), or mend the model's",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Suspicions that are not sure enough for an error."""
        met = sum(self._met.values())
        if self._boxes >= _ENOUGH and met < _FEW_MEET * self._boxes:
            return (
                f"{met} of {self._boxes} labelled boxes lie where the model detects something: are they of these "
                f"images, and is their format the right one?{_OR_INT8 if self._is_int8 else ''}",
            )
        return tuple(
            f"{count} of {total} boxes of {self._labels[one]} are detected as {self._labels[other]}"
            for one, (other, count, total) in self._taken_for().items()
        )

    def _taken_for(self, *, fewest: int = _FEWEST) -> dict[int, tuple[int, int, int]]:
        """Return of labelled classes that are detected as another one: that one, of how many boxes, of how many."""
        of_class: dict[int, Counter[int]] = {}
        for (one, other), count in self._met.items():
            of_class.setdefault(one, Counter())[other] += count
        most = {one: (*counts.most_common(1)[0], counts.total()) for one, counts in sorted(of_class.items())}
        return {
            one: (other, count, total)
            for one, (other, count, total) in most.items()
            if other != one and count >= fewest and count >= _MOST * total
        }

    def _changed_places(self) -> dict[int, tuple[int, int, int]]:
        """Return a circle of classes, each detected as the next one: no model errs like that, so few boxes tell."""
        taken = self._taken_for(fewest=1)
        for start in taken:
            circle, at = [start], taken[start][0]
            while at in taken and at not in circle:
                circle.append(at)
                at = taken[at][0]
            if at == start and sum(taken[one][1] for one in circle) >= _FEWEST_OF_CIRCLE:
                return {one: taken[one] for one in circle}
        return {}
