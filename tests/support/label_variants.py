"""Labels as people have them: each writes one small set in some form, and says what must come of it.

What comes is the accuracy of the truth itself, that of other boxes, or a refusal by its exit code.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.labelled import CLASSES, SIZE, Box, Given

REFUSED = 2
SHUFFLED = ("person", "bus", "car", "truck")
COCO_NAMES = ("traffic light", "tv", "potted plant", "couch")  # of a model whose classes are called so


@dataclass(frozen=True)
class Variant:
    """`make` returns what `--labels` names; `boxes` count then; `noted` is in the note that has to come."""

    name: str
    make: Callable[[Given], Path]
    boxes: Callable[[Sequence[Box]], Sequence[Box]] = list
    code: int = 0
    labels: tuple[str, ...] = CLASSES
    classes_by: str = "name"
    noted: str = ""
    unlabelled: int = 0
    left_out: int = 0


def yolo(name, make, **expected):
    YOLO.append(Variant(name, make, **expected))


def coco(name, make, **expected):
    COCO_FILES.append(Variant(name, make, **expected))


YOLO: list[Variant] = []
COCO_FILES: list[Variant] = []


def named(path, *names, folder="labels", end="\n", start=""):
    """Labels numbered by `names`, which stand in a file at `path`."""

    def make(given):
        given.text(path, *([start + names[0], *names[1:]]), end=end)
        return given.yolo(folder, number=lambda class_id: _place(names, class_id))

    return make


def _place(names, class_id, plain=lambda name: name.strip().casefold()):
    return [plain(name) for name in names].index(CLASSES[class_id])


def by_yaml(text, *, path="data.yaml", folder="labels", names=SHUFFLED, gives_yaml=False, also=()):
    def make(given):
        given.text(path, *text.splitlines())
        for other, line in also:
            given.text(other, line)
        made = given.yolo(folder, number=lambda class_id: _place(names, class_id))
        if gives_yaml:
            (given.place / "images").symlink_to(given.street.images)
        return given.place / path if gives_yaml else made

    return make


ROBOFLOW = f"train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 4\nnames: {list(SHUFFLED)}\n"
ULTRALYTICS = "path: ../datasets/street\ntrain: images/train\nval: images/val\nnames:\n" + "".join(
    f"  {number}: {name}\n" for number, name in enumerate(SHUFFLED)
)


def two_yamls(given):
    """The grandparent has a data.yaml of another set, too."""
    (given.place / "street/images/val").mkdir(parents=True)
    (given.place / "other/images").mkdir(parents=True)
    given.text("street.yaml", "path: street", "val: images/val", f"names: {list(SHUFFLED)}")
    given.text("other.yaml", "path: other", "val: images", "names: [cat, dog]")
    return given.yolo("street/labels", number=lambda class_id: _place(SHUFFLED, class_id))


def beside_pipeline(given):
    """Another YAML file, and one that is none, stand there, too."""
    given.text("two-gates.yaml", "streams: [{id: gate}]")
    given.text("broken.yaml", "key: [", "other: }")
    return named("classes.txt", *SHUFFLED)(given)


def beside_resource_forks(given):
    """A volume without extended attributes gets a second file for each."""
    folder = named("obj.names", *SHUFFLED, folder="obj_train_data")(given)
    for path in (*given.place.glob("*.names"), *folder.glob("*.txt")):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X\xff")
    return folder


def renamed(names):
    """Labels numbered as the model has them, with other spellings in classes.txt."""

    def make(given):
        given.text("classes.txt", *names)
        return given.yolo()

    return make


def with_images_called_classes(given):
    """The labels of a picture stand where a file of names could stand."""
    given.text("labels/classes.txt", "0 0.5 0.5 0.1 0.1")
    return given.yolo()


yolo("numbers alone", lambda given: given.yolo(), classes_by="number")
yolo("classes.txt in the folder", named("labels/classes.txt", *SHUFFLED))
yolo("classes.txt beside the folder", named("classes.txt", *SHUFFLED))
yolo("classes.txt two folders above", named("classes.txt", *SHUFFLED, folder="labels/val"))
yolo("classes.txt, Windows lines and a mark", named("classes.txt", *SHUFFLED, end="\r\n", start="\ufeff"))
yolo("classes.txt in capitals", named("classes.txt", *(f" {name.upper()} " for name in SHUFFLED)))
yolo("predefined_classes.txt of LabelImg", named("predefined_classes.txt", "dog", *SHUFFLED, "tree"))
yolo("obj.names of CVAT", named("obj.names", *SHUFFLED, folder="obj_train_data"))
yolo("obj.names beside what macOS leaves", beside_resource_forks)
yolo("names of Darknet", named("data/street.names", *SHUFFLED, folder="data/labels"))
yolo("_darknet.labels of Roboflow", named("labels/_darknet.labels", *SHUFFLED))
yolo(
    "notes.json of Label Studio",
    lambda given: (
        given.text("notes.json", json.dumps({"categories": [{"id": i, "name": n} for i, n in enumerate(SHUFFLED)]})),
        given.yolo(number=lambda class_id: _place(SHUFFLED, class_id)),
    )[1],
)
yolo("data.yaml of Roboflow", by_yaml(ROBOFLOW, folder="train/labels"))
yolo("data.yaml of Roboflow, of the test part", by_yaml(ROBOFLOW, folder="test/labels"))
yolo("data.yaml of Ultralytics", by_yaml(ULTRALYTICS, folder="labels/val"))
yolo("data.yaml as --labels", by_yaml(ULTRALYTICS, gives_yaml=True, path="street.yaml"))
yolo("data.yaml, numbers in any order", by_yaml("names: {2: car, 0: person, 3: truck, 1: bus}"))
yolo("data.yaml with a mark of Windows", by_yaml(f"\ufeffnames: {list(SHUFFLED)}"))
yolo(
    "data.yaml, path of another machine",
    by_yaml(f"path: /content/set\nval: /content/v/images\nnames: {list(SHUFFLED)}"),
)
yolo("data.yaml and classes.txt that agree", by_yaml(ROBOFLOW, also=[("classes.txt", "\n".join(SHUFFLED))]))
yolo("data.yaml of two sets", two_yamls)
yolo("other YAML files", beside_pipeline)
yolo("a picture called classes", with_images_called_classes, classes_by="number")
yolo("data.yaml whose nc is another", by_yaml("nc: 3\nnames: [person, bus, car, truck]"), code=REFUSED)
yolo("data.yaml that is cut", by_yaml("names: [person, bus"), code=REFUSED)
yolo("files of names that differ", by_yaml(ROBOFLOW, also=[("obj.names", "\n".join(CLASSES))]), code=REFUSED)


yolo("names with _ and -", renamed(("Traffic_Light", "TV", "potted-plant", "couch ")), labels=COCO_NAMES)
yolo("names of VOC", renamed(("trafficlight", "tvmonitor", "pottedplant", "sofa")), labels=COCO_NAMES)
yolo(
    "names of another language",
    renamed(("Auto", "Laster", "Bus!", "Mensch")),
    classes_by="order",
    noted="4 of 4 class names are unknown",
)
yolo("one unknown name, others in place", renamed(("car", "lorry", "bus", "person")), classes_by="order", noted="lorry")
yolo("one unknown name, others elsewhere", renamed(("lorry", "car", "bus", "person")), code=REFUSED)
yolo("fewer names, none known", renamed(("Auto", "Mensch")), code=REFUSED)
yolo("a number without a name", renamed(CLASSES[:3]), code=REFUSED)
yolo(
    "a class that the model does not know",
    lambda given: (
        given.text("classes.txt", *CLASSES, "tree"),
        given.yolo(boxes=[*given.boxes, dataclasses.replace(given.boxes[0], class_id=4)]),
    )[1],
    left_out=1,
)
yolo(
    "some classes of the model",
    lambda given: (
        given.text("classes.txt", "person", "car"),
        given.yolo(
            boxes=[box for box in given.boxes if box.class_id in (0, 3)], number=lambda class_id: int(class_id == 0)
        ),
    )[1],
    boxes=lambda boxes: [box for box in boxes if box.class_id in (0, 3)],
)
yolo("numbers shifted around", lambda given: given.yolo(number=lambda n: (n + 1) % 4), code=REFUSED)
yolo("two classes swapped", lambda given: given.yolo(number=lambda n: (3, 1, 2, 0)[n]), code=REFUSED)
yolo(
    "two names alike, as the model has them",
    renamed(("car", "truck", "bus", "car")),
    labels=("car", "truck", "bus", "car"),
)
yolo("two names swapped", renamed(("person", "truck", "bus", "car")), code=REFUSED)


def pose(points, *, dimensions):
    """Keypoints along the diagonal of a box; every third of three is visible."""

    def columns(box):
        x, y, width, height = box.centred
        more = []
        for point in range(points):
            share = (point + 1) / (points + 1) - 0.5
            more += [x + share * width, y + share * height, point % 3][:dimensions]
        return [*box.centred, *more]

    return columns


def outline(box):
    """A polygon; the larger the box, the more points."""
    numbers, extra = box.corners, int(box.xywh[2]) % 4
    left, top, right = numbers[0], numbers[1], numbers[2]
    between = [one for step in range(extra) for one in (left + (right - left) * (step + 1) / (extra + 1), top)]
    return [*numbers[:2], *between, *numbers[2:]]


def posed(columns, *yaml, folder="labels"):
    def make(given):
        if yaml:
            given.text("data.yaml", *yaml)
        return given.yolo(folder, columns=columns)

    return make


ORDERED = f"names: {list(CLASSES)}"
yolo("a confidence", posed(lambda box: [*box.centred, 0.75]), classes_by="number")
yolo("a confidence and an id", posed(lambda box: [*box.centred, 0.75, int(box.left)]), classes_by="number")
yolo("an id", posed(lambda box: [*box.centred, int(box.left)]), classes_by="number")
yolo("17 keypoints of a pose", posed(pose(17, dimensions=3)), classes_by="number")
yolo("4 keypoints, seen or not", posed(pose(4, dimensions=3)), classes_by="number")
yolo("4 keypoints, as data.yaml says", posed(pose(4, dimensions=2), "kpt_shape: [4, 2]", ORDERED))
yolo("4 keypoints, or a polygon", posed(pose(4, dimensions=2)), code=REFUSED)
yolo("other keypoints than data.yaml says", posed(pose(5, dimensions=2), "kpt_shape: [4, 2]", ORDERED), code=REFUSED)
yolo("polygons", posed(outline), classes_by="number")
yolo("oriented boxes", posed(lambda box: box.corners), classes_by="number")
yolo("closed polygons with a data.yaml", posed(lambda box: [*box.corners, *box.corners[:2]], ORDERED))
yolo("boxes and polygons", posed(lambda box: box.centred if box.class_id else outline(box)), classes_by="number")
yolo("a polygon that lost a number", posed(lambda box: outline(box)[: -1 if box.class_id else None]), code=REFUSED)
yolo(
    "corners in place of a centre",
    posed(lambda box: [*box.corners[:2], *box.corners[4:6]]),
    boxes=lambda boxes: [_as_if_centred(box) for box in boxes],
    classes_by="number",
    noted="labelled boxes lie where the model detects",
)
yolo("Windows lines", lambda given: given.yolo(end="\r\n"), classes_by="number")
yolo("files with a mark", lambda given: given.yolo(start="\ufeff"), classes_by="number")
yolo(
    "pictures without labels",
    lambda given: given.yolo(stems=given.street.stems[4:]),
    boxes=lambda boxes: [box for box in boxes if not box.stem.startswith("street-1-")],
    classes_by="number",
    unlabelled=4,
)


yolo(
    "two files put one behind the other",
    lambda given: given.yolo(boxes=[*given.boxes, *given.boxes]),
    boxes=lambda boxes: [*boxes, *boxes],
    classes_by="number",
    noted="boxes the same as another one of their image",
)


def _as_if_centred(box):
    (left, top), (right, bottom) = (box.left, box.top), (box.right, box.bottom)
    return dataclasses.replace(
        box, left=left - right / 2, top=top - bottom / 2, right=left + right / 2, bottom=top + bottom / 2
    )


def spelled(*names, ids=(1, 2, 3, 4)):
    return lambda given: given.coco(names, ids=ids)


def changed(**changes):
    return lambda given: given.coco(**changes)


def called(name):
    """Each picture listed under `name` of its stem."""
    return lambda given: given.coco(image=lambda stem: {"file_name": name.format(stem)})


EIGHTY = [{"id": 100 + number, "name": f"thing {number}"} for number in range(76)]
coco("ids from 1", spelled(*CLASSES))
coco("ids from 0", spelled(*CLASSES, ids=(0, 1, 2, 3)))
coco("ids in any order", spelled(*CLASSES, ids=(7, 90, 1, 3)))
coco("categories in any order", changed(categories=lambda own: own[::-1]))
coco("ids as text", spelled(*CLASSES, ids=("1", "2", "3", "4")))
coco("names in capitals, with blanks", spelled(" CAR", "Truck", "BUS ", "Person"))
coco("names in full width", spelled("\uff43\uff41\uff52", "truck", "bus", "person", ids=(4, 3, 2, 1)))
coco("names with _", spelled("traffic_light", "tv", "potted_plant", "couch", ids=(4, 3, 2, 1)), labels=COCO_NAMES)
coco("names with -", spelled("traffic-light", "tv", "potted-plant", "couch", ids=(2, 4, 1, 3)), labels=COCO_NAMES)
coco("names without blanks", spelled("trafficlight", "TV", "pottedplant", "couch", ids=(2, 4, 1, 3)), labels=COCO_NAMES)
coco("tvmonitor", spelled("traffic light", "tvmonitor", "potted plant", "couch", ids=(4, 2, 3, 1)), labels=COCO_NAMES)
coco("sofa", spelled("traffic light", "tv monitor", "potted plant", "Sofa", ids=(4, 2, 3, 1)), labels=COCO_NAMES)
coco(
    "aeroplane, motorbike, diningtable",
    spelled("aeroplane", "motorbike", "diningtable", "tvmonitor", ids=(4, 3, 2, 1)),
    labels=("airplane", "motorcycle", "dining table", "tv"),
)
coco(
    "names of COCO for a model of VOC",
    spelled("airplane", "motorcycle", "dining table", "tv", ids=(4, 3, 2, 1)),
    labels=("aeroplane", "motorbike", "diningtable", "tvmonitor"),
)
coco(
    "a model that tells tv from tvmonitor",
    spelled("tvmonitor", "tv", "bus", "person"),
    labels=("tvmonitor", "tv", "bus", "person"),
)
coco(
    "two spellings of one of two such classes",
    spelled("tv", "television", "bus", "person"),
    labels=("tvmonitor", "tv", "bus", "person"),
    code=REFUSED,
)
coco("names of another language", spelled("Auto", "Laster", "Bus!", "Mensch"), classes_by="order", noted="4 of 4")
coco("one unknown name, others in place", spelled("car", "lorry", "bus", "person"), classes_by="order", noted="lorry")
coco("one unknown name, others elsewhere", spelled("car", "lorry", "bus", "person", ids=(4, 3, 2, 1)), code=REFUSED)
coco("one unknown name, two swapped", spelled("bus", "lorry", "car", "person"), code=REFUSED)
coco("two names swapped", spelled("person", "truck", "bus", "car"), code=REFUSED)
coco("all names shifted", spelled("truck", "bus", "person", "car"), code=REFUSED)
coco("other names in another order", spelled("Mensch", "Auto", "Bus!", "Laster", ids=(4, 1, 3, 2)), code=REFUSED)
coco("another number of names, none known", changed(categories=lambda own: [
    *({**one, "name": f"class {one['id']}x"} for one in own), {"id": 0, "name": "all"}]), code=REFUSED)  # fmt: skip
coco("Roboflow's category above all", changed(categories=lambda own: [{"id": 0, "name": "street-3fk2"}, *own]))
coco("eighty categories, four of them used", changed(categories=lambda own: [*own, *EIGHTY]))
coco(
    "a class that the model does not know",
    changed(
        categories=lambda own: [*own, {"id": 9, "name": "tree"}],
        annotations=lambda own: [*own, {**own[0], "id": -1, "category_id": 9}],
    ),
    left_out=1,
)
coco(
    "some classes of the model",
    lambda given: given.coco(
        boxes=[box for box in given.boxes if box.class_id in (0, 3)], categories=lambda own: [own[0], own[3]]
    ),
    boxes=lambda boxes: [box for box in boxes if box.class_id in (0, 3)],
)
coco(
    "two ids of one name",
    changed(
        categories=lambda own: [*own, {"id": 9, "name": "Car"}],
        annotations=lambda own: [
            {**one, "category_id": 9} if one["category_id"] == 1 and one["id"] % 2 else one for one in own
        ],
    ),
)
TWO_CARS = ("car", "truck", "bus", "car")
coco("two classes of one name, as the model has them", spelled(*TWO_CARS), labels=TWO_CARS)
coco("one name for two classes of the model", spelled("bus", "truck", "lorry", "car"), labels=TWO_CARS, code=REFUSED)
coco("two names of one id", changed(categories=lambda own: [*own, {"id": 1, "name": "lorry"}]), code=REFUSED)
coco("no categories", changed(categories=lambda own: None), code=REFUSED)
coco("files in folders", called("val/{}.jpg"))
coco("files of Windows", called("C:\\set\\val\\{}.jpg"))
coco("files in another format", called("{}.png"))
coco("ids of pictures as text", lambda given: given.coco(image=lambda stem: {"id": f"id of {stem}"}))
coco("no sizes", lambda given: given.coco(image=lambda stem: {"width": None, "height": None}))
coco(
    "sizes of another picture",
    lambda given: given.coco(image=lambda stem: {"width": SIZE.height, "height": SIZE.width}),
    code=REFUSED,
)
coco(
    "pictures that are not listed",
    lambda given: given.coco(
        boxes=[box for box in given.boxes if not box.stem.startswith("street-1-")], images=lambda own: own[4:]
    ),
    boxes=lambda boxes: [box for box in boxes if not box.stem.startswith("street-1-")],
    unlabelled=4,
)
coco(
    "annotations that were exported twice",
    changed(annotations=lambda own: [*own, *({**one, "id": one["id"] + 10_000} for one in own)]),
    boxes=lambda boxes: [*boxes, *boxes],
    noted="boxes the same as another one of their image",
)
coco("crowds", lambda given: given.coco(boxes=_crowds(given.boxes)), boxes=lambda boxes: _crowds(boxes))
coco(
    "masks beside boxes",
    changed(annotations=lambda own: [{**one, "segmentation": [[1, 1, 2, 1, 2, 2]]} for one in own]),
)
coco(
    "boxes as text",
    changed(annotations=lambda own: [{**one, "bbox": [str(side) for side in one["bbox"]]} for one in own]),
)
coco(
    "a file of predictions",
    lambda given: given.text("p.json", json.dumps([{"image_id": 1, "category_id": 1}])),
    code=REFUSED,
)
coco("a byte order mark", lambda given: _marked(given.coco()))


def _crowds(boxes):
    return [dataclasses.replace(box, is_crowd=index % 7 == 0) for index, box in enumerate(boxes)]


def _marked(path):
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return path
