"""Malformed labels, COCO instances and YOLO text, each named; of good ones the accuracy is in test_label_matrix.py."""

import json
from pathlib import Path

import pytest

from edge.errors import DatasetError
from edge.evaluate.labels import open_labels
from edge.types import ImageSize

SIZE = ImageSize(width=200, height=100)
CATEGORIES = [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}, {"id": 6, "name": "bus"}]


def _document(**changes):
    return {
        "images": [
            {"id": 10, "file_name": "val/street.jpg", "width": 200, "height": 100},
            {"id": 11, "file_name": "night.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 10, "category_id": 3, "bbox": [10, 20, 30, 40], "iscrowd": 0},
            {"id": 2, "image_id": 10, "category_id": 1, "bbox": [0.5, 0, 100, 50], "iscrowd": 1},
        ],
        "categories": CATEGORIES,
        **changes,
    }


def _open(tmp_path, labels, **changes):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(_document(**changes)))
    return open_labels(path, labels, images=Path())


def test_listed_image_without_objects_is_not_counted_as_unlabelled(tmp_path):
    labels = _open(tmp_path, ("person", "car", "bus"))

    assert len(labels.truth("night", SIZE)) == 0
    assert len(labels.truth("elsewhere", SIZE)) == 0
    assert labels.unlabelled == ("elsewhere",)


def test_labels_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"do not fit the model: it has 2 classes, the file 3; .*: car, person"):
        _open(tmp_path, ("helmet", "vest"))


def test_a_name_of_several_classes_of_the_model_is_not_called_unknown(tmp_path):
    with pytest.raises(DatasetError, match="the file 3; of several of its classes: car, person"):
        _open(tmp_path, ("car", "car", "PERSON", "Person", "dog"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"annotations": [{"id": 7, "image_id": 10}]}, r"annotations\[0\] \(id 7\) without 'category_id'"),
        ({"annotations": [{"id": 7, "image_id": 10, "category_id": 1}]}, r"\(id 7\) without 'bbox'"),
        (
            {"images": [{"id": 1, "file_name": "x.jpg"}, {"id": 1, "file_name": "y.jpg"}]},
            r'the images "x" and "y" have the same id \(1\)',
        ),
        (
            {"annotations": [{"id": 7, "image_id": 99, "category_id": 1, "bbox": [1, 2, 3, 4]}]},
            "annotation 7 is of image 99, which the file does not list$",
        ),
        (
            {"images": [{"id": "10", "file_name": "x.jpg"}]},
            "annotation 1 is of image 10, which the file does not list, only '10': text and numbers",
        ),
        (
            {"images": [{"id": 1, "file_name": "a/x.jpg"}, {"id": 2, "file_name": "b/x.jpg"}]},
            'two images are called "x"',
        ),
        ({"images": None}, "expected COCO instances, got a file with a value of another kind"),
        ({"images": [{"id": 1, "file_name": 3}]}, r"images\[0\] \(id 1\) with a value of another kind"),
        ({"categories": [{"id": "1", "name": "person"}]}, "category 1, which the file does not list, only '1': text"),
        ({"categories": {}}, "category 1, which the file does not list"),
        ({"categories": [CATEGORIES[0], "person"]}, r"got categories\[1\] with a value of another kind"),
    ],
)
def test_malformed_file_is_refused(tmp_path, changes, reason):
    with pytest.raises(DatasetError, match=reason):
        _open(tmp_path, ("person", "car", "bus"), **changes)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", pytest.param("[" * 100_000, id="nested")])
def test_file_that_is_no_coco_json_is_refused(tmp_path, text):
    path = tmp_path / "instances.json"
    path.write_text(text)

    with pytest.raises(DatasetError, match=r"instances\.json: expected"):
        open_labels(path, ("person",), images=Path())


@pytest.mark.parametrize(
    "bbox",
    [[10, 20, -30, 40], [10, 20, 30, float("nan")], [float("inf"), 0, 1, 1], [1, 2, 3], [], None, "abcd"],
)
def test_a_box_that_is_none_is_refused_with_its_annotation(tmp_path, bbox):
    annotation = {"id": 7, "image_id": 10, "category_id": 3, "bbox": bbox}

    with pytest.raises(DatasetError, match=r"annotation 7: expected bbox \[x, y, width, height\]"):
        _open(tmp_path, ("bus", "car", "person"), annotations=[annotation])


@pytest.mark.parametrize("stem", ["street", "night"])
@pytest.mark.parametrize(
    ("bbox", "is_refused"),
    [
        ([-1, -1, 202, 102], False),  # rounding at the border
        ([-40, 0, 100, 50], False),  # it leaves the picture, as YOLO labels may say
        ([0, 0, 203, 50], True),
        ([1, 2, 0, 4], True),
        ([110, 50, 190, 40], True),  # corners
        ([-1.5, 0, 1, 50], True),  # wholly beside it
        ([0, 100, 50, 1], True),
    ],
)
def test_a_box_far_beyond_its_image_is_refused_as_in_yolo_labels(tmp_path, bbox, is_refused, stem):
    image_id = 10 if stem == "street" else 11  # the second has no size in the file
    labels = _open(tmp_path, LABELS, annotations=[{"id": 7, "image_id": image_id, "category_id": 3, "bbox": bbox}])
    if not is_refused:
        assert len(labels.truth(stem, SIZE)) == 1
        return
    with pytest.raises(DatasetError, match=rf"annotation 7: expected a box with an area within {stem} \(200x100\)"):
        labels.truth(stem, SIZE)
    assert len(labels.truth("night" if stem == "street" else "street", SIZE)) == 0  # of this one nothing is wrong


LABELS = ("person", "car", "bus")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "street.txt").write_text("1 0.5 0.5 0.2 0.4\n\n0 0.1 0.2 0.2 0.4\n")
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def test_missing_file_is_an_image_without_objects_and_counted(folder):
    labels = open_labels(folder, LABELS, images=Path())

    assert len(labels.truth("night", SIZE)) == 0
    assert len(labels.truth("empty", SIZE)) == 0
    assert labels.unlabelled == ("night",)


def test_many_empty_files_are_told_and_few_are_not(folder):
    names = [f"{number}" for number in range(11)]
    for name in names:
        (folder / f"{name}.txt").write_text("1 0.5 0.5 0.2 0.4\n")
    labels = open_labels(folder, LABELS, images=Path())
    for name in [*names[:10], "empty", "empty", "night"]:
        labels.truth(name, SIZE)
    assert labels.notes == ()

    (folder / f"{names[10]}.txt").write_text("\n")
    labels.truth(names[10], SIZE)

    (told,) = labels.notes
    assert "2 of 13 images have an empty label file" in told


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("car 0.5 0.5 0.2 0.4", 'expected "class cx cy w h" in numbers, got'),
        ("1 0.5 0.5 0.2", "expected a class and 4 numbers .* got 3 after the class"),
        ("1 0.5 0.5 0.2 0.4 1.5", ".*got 5 after the class"),
        ("1 100 50 40 40", "expected numbers from 0 to 1, .*divide pixels"),
        ("1 0.5 0.5 nan 0.4", "expected numbers from 0 to 1, got '1 0.5 0.5 nan 0.4'$"),
        ("1 0.5 0.5 -0.2 0.4", "expected numbers from 0 to 1, got '1 0.5 0.5 -0.2 0.4'$"),
        ("1 1.0005 0.5 0.0005 0.4", "expected a box in the image, got one beside it"),
        ("1 0.5 0.5 0.2 0", "expected a box with an area"),
        ("3 0.5 0.5 0.2 0.4", r"labels that do not fit the model: class 3, the model has 3 \(0 to 2\)"),
        ("-1 0.5 0.5 0.2 0.4", "labels that do not fit the model: class -1"),
        ("1.5 0.5 0.5 0.2 0.4", "labels that do not fit the model: class 1.5"),
        ("inf 0.5 0.5 0.2 0.4", "labels that do not fit the model: class inf"),
    ],
)
def test_malformed_line_is_named(folder, line, reason):
    (folder / "bad.txt").write_text(f"0 0.5 0.5 0.1 0.1\n{line}\n")

    with pytest.raises(DatasetError, match=rf"bad\.txt:2: {reason}"):
        open_labels(folder, LABELS, images=Path()).truth("bad", SIZE)


def test_binary_file_is_refused(folder):
    (folder / "bad.txt").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(DatasetError, match=r"bad\.txt: expected lines of labels, this is text in UTF-16"):
        open_labels(folder, LABELS, images=Path()).truth("bad", SIZE)


def test_a_folder_in_place_of_a_label_is_refused(folder):
    (folder / "bad.txt").mkdir()

    with pytest.raises(DatasetError, match=r"bad\.txt: cannot be read: expected a regular file, got a folder"):
        open_labels(folder, LABELS, images=Path()).truth("bad", SIZE)


def test_folder_without_labels_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"found no \.txt file"):
        open_labels(tmp_path, LABELS, images=Path())


def test_neither_folder_nor_json_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="there is neither file nor folder"):
        open_labels(tmp_path / "none", LABELS, images=Path())
