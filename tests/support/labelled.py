"""One small set of labelled pictures of the demo's street, and writers of its labels in the forms that people have."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edge.media.images import write_image
from edge.quantize.crew import Here
from edge.types import ImageSize
from tools.street.scene import Scene

MODEL = Path("edge/demo/model/traffic.onnx").resolve()
CLASSES = ("car", "truck", "bus", "person")
SIZE = ImageSize(width=640, height=360)
FRAMES = [(seed, index) for seed in (1, 3, 5, 10) for index in (0, 90, 180, 270)]


@dataclass(frozen=True)
class Box:
    """A labelled object, in pixels."""

    stem: str
    class_id: int
    left: float
    top: float
    right: float
    bottom: float
    is_crowd: bool = False

    @property
    def xywh(self):
        return [self.left, self.top, self.right - self.left, self.bottom - self.top]

    @property
    def centred(self):
        """(cx, cy, w, h), 0 to 1."""
        left, top, width, height = self.xywh
        return [
            (left + width / 2) / SIZE.width,
            (top + height / 2) / SIZE.height,
            width / SIZE.width,
            height / SIZE.height,
        ]

    @property
    def corners(self):
        """Eight numbers from 0 to 1, around the box."""
        left, right, top, bottom = (
            self.left / SIZE.width, self.right / SIZE.width, self.top / SIZE.height, self.bottom / SIZE.height,
        )  # fmt: skip
        return [left, top, right, top, right, bottom, left, bottom]


@dataclass(frozen=True)
class Street:
    """Pictures in `images`, and what is on them."""

    folder: Path
    stems: tuple[str, ...]
    boxes: tuple[Box, ...]

    @property
    def images(self):
        return self.folder / "images"


def write_street(folder):
    """Write the pictures, with the truth of the scenes that they were painted from."""
    images = folder / "images"
    images.mkdir()
    stems, boxes, scenes = [], [], {seed: Scene(seed, SIZE) for seed, _ in FRAMES}
    for seed, index in FRAMES:
        picture, truth = scenes[seed].frame(index)
        stems.append(f"street-{seed}-{index}")
        write_image(images / f"{stems[-1]}.jpg", picture)
        pairs = zip(truth.class_id.tolist(), truth.xyxy.tolist(), strict=True)
        boxes += [Box(stems[-1], class_id, *xyxy) for class_id, xyxy in pairs]
    return Street(folder, tuple(stems), tuple(boxes))


class Remembering:
    """A crew that infers once: nothing that is asked here changes what is detected."""

    def __init__(self):
        self.found = None

    def take_on(self, work):
        return _Remembered(self, work)


@dataclass
class _Remembered:
    crew: Remembering
    work: object
    engine: str = field(default="remembered")

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def each(self, items, *, on_item):
        if self.crew.found is None:
            with Here().take_on(self.work) as job:
                self.crew.found = list(job.each(items, on_item=on_item))
        return iter(self.crew.found)


@dataclass(frozen=True)
class Detected:
    """What the model finds on the pictures, in their order."""

    street: Street
    found: list

    def score(self, boxes):
        """mAP50-95 against `boxes`, by pycocotools."""
        number = {stem: index for index, stem in enumerate(sorted(self.street.stems), 1)}
        annotations = [
            {"id": index, "image_id": number[box.stem], "category_id": box.class_id, "bbox": box.xywh,
             "area": box.xywh[2] * box.xywh[3], "iscrowd": int(box.is_crowd)}
            for index, box in enumerate(boxes, 1)
        ]  # fmt: skip
        reference = COCO()
        reference.dataset = {
            "info": {},
            "images": [{"id": one} for one in number.values()],
            "categories": [{"id": one, "name": str(one)} for one in range(len(CLASSES))],
            "annotations": annotations,
        }
        reference.createIndex()
        evaluation = COCOeval(reference, reference.loadRes(self._results(number)), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        return float(evaluation.stats[0])

    def _results(self, number):
        return [
            {"image_id": number[stem], "category_id": class_id, "score": score,
             "bbox": [left, top, right - left, bottom - top]}
            for stem, (_, seen) in zip(sorted(self.street.stems), self.found, strict=True)
            for (left, top, right, bottom), class_id, score in zip(
                seen.xyxy.tolist(), seen.class_id.tolist(), seen.score.tolist(), strict=True
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class Given:
    """A place where labels of `street` are written in some form."""

    place: Path
    street: Street

    @cached_property
    def boxes(self):
        return self.street.boxes

    def text(self, name, *lines, end="\n"):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}{end}" for line in lines).encode())
        return path

    def yolo(self, folder="labels", *, number=lambda class_id: class_id, columns=lambda box: box.centred, boxes=None,
             stems=None, end="\n", start=""):  # fmt: skip
        """Write a text file for each picture, with `number` of its class and `columns` of each box."""
        for stem in self.street.stems if stems is None else stems:
            own = [box for box in (self.boxes if boxes is None else boxes) if box.stem == stem]
            lines = [" ".join([str(number(box.class_id)), *(_word(one) for one in columns(box))]) for box in own]
            self.text(f"{folder}/{stem}.txt", *(f"{start}{line}" for line in lines[:1]), *lines[1:], end=end)
        return self.place / folder

    def coco(self, names=CLASSES, *, ids=(1, 2, 3, 4), boxes=None, image=None, **changes):
        """Write an instances file; `names` and `ids` are of the classes of the model, `image` changes entries."""
        size = {"width": SIZE.width, "height": SIZE.height}
        images = [
            {"id": index, "file_name": f"{stem}.jpg", **size, **(image(stem) if image else {})}
            for index, stem in enumerate(self.street.stems)
        ]  # fmt: skip
        id_of = {
            entry["file_name"].replace("\\", "/").rpartition("/")[2].rpartition(".")[0]: entry["id"] for entry in images
        }
        annotations = [
            {"id": index, "image_id": id_of[box.stem], "category_id": ids[box.class_id], "bbox": box.xywh,
             "iscrowd": int(box.is_crowd)}
            for index, box in enumerate(self.boxes if boxes is None else boxes)
        ]  # fmt: skip
        document = {
            "images": images,
            "annotations": annotations,
            "categories": [{"id": one, "name": name} for one, name in zip(ids, names, strict=True)],
        }
        for key, change in changes.items():
            document[key] = change(document[key])
        return self.text("instances.json", json.dumps({key: one for key, one in document.items() if one is not None}))


def _word(number):
    return str(number) if isinstance(number, int) else f"{number:.6f}"
