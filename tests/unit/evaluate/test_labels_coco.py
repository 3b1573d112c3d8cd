"""COCO instances: category ids with gaps become class ids, by name where names fit, else by order."""

import json
from pathlib import Path

import numpy as np
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


def test_boxes_classes_and_crowds(tmp_path):
    truth = _open(tmp_path, ("bus", "Car", "person")).truth("street", SIZE)

    np.testing.assert_array_equal(truth.xyxy, [[10, 20, 40, 60], [0.5, 0, 100.5, 50]])
    assert truth.class_id.tolist() == [1, 2]
    assert truth.is_crowd.tolist() == [False, True]


def test_listed_image_without_objects_is_not_counted_as_unlabelled(tmp_path):
    labels = _open(tmp_path, ("person", "car", "bus"))

    assert len(labels.truth("night", SIZE)) == 0
    assert len(labels.truth("elsewhere", SIZE)) == 0
    assert labels.unlabelled == ("elsewhere",)


def test_other_names_of_the_same_number_go_by_order(tmp_path):
    truth = _open(tmp_path, ("Mensch", "Auto", "Bus!")).truth("street", SIZE)

    assert truth.class_id.tolist() == [1, 0]


def test_categories_that_the_model_does_not_know_are_left_out(tmp_path):
    labels = _open(tmp_path, ("car",))

    assert labels.truth("street", SIZE).class_id.tolist() == [0]
    assert labels.left_out == 1


def test_model_that_knows_more_goes_by_name(tmp_path):
    truth = _open(tmp_path, ("dog", "cat", "car", "person", "bus")).truth("street", SIZE)

    assert truth.class_id.tolist() == [2, 3]


def test_labels_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"do not fit the model: it has 2 classes, the file 3; .*: car, person"):
        _open(tmp_path, ("helmet", "vest"))


def test_image_of_another_size_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="street is labelled at 200x100, the image is 100x200"):
        _open(tmp_path, ("person", "car", "bus")).truth("street", ImageSize(width=100, height=200))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"annotations": [{"image_id": 10}]}, "expected COCO instances .*category_id"),
        ({"annotations": [{"image_id": 10, "category_id": 1, "bbox": [1, 2, 3]}]}, "expected COCO instances"),
        ({"annotations": [{"id": 7, "image_id": 99, "category_id": 1, "bbox": [1, 2, 3, 4]}]}, "annotation 7 is of an"),
        (
            {"images": [{"id": 1, "file_name": "a/x.jpg"}, {"id": 2, "file_name": "b/x.jpg"}]},
            'two images are called "x"',
        ),
        ({"images": None}, "expected COCO instances"),
    ],
)
def test_malformed_file_is_refused(tmp_path, changes, reason):
    with pytest.raises(DatasetError, match=reason):
        _open(tmp_path, ("person", "car", "bus"), **changes)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_file_that_is_no_coco_json_is_refused(tmp_path, text):
    path = tmp_path / "instances.json"
    path.write_text(text)

    with pytest.raises(DatasetError, match=r"instances\.json: expected"):
        open_labels(path, ("person",), images=Path())


@pytest.mark.parametrize("bbox", [[10, 20, -30, 40], [10, 20, 30, float("nan")], [float("inf"), 0, 1, 1]])
def test_a_box_that_is_none_is_refused_with_its_annotation(tmp_path, bbox):
    annotation = {"id": 7, "image_id": 10, "category_id": 3, "bbox": bbox}

    with pytest.raises(DatasetError, match=r"annotation 7: expected bbox \[x, y, width, height\]"):
        _open(tmp_path, ("bus", "car", "person"), annotations=[annotation])


def test_a_category_that_is_not_listed_is_named(tmp_path):
    annotation = {"id": 7, "image_id": 10, "category_id": 99, "bbox": [0, 0, 1, 1]}

    with pytest.raises(DatasetError, match="category 99, which the file does not list"):
        _open(tmp_path, ("bicycle", "dog"), annotations=[annotation])


def test_a_file_that_is_nested_without_end_is_refused(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)

    with pytest.raises(DatasetError, match="expected a COCO JSON file"):
        open_labels(tmp_path / "deep.json", ("car",), images=Path())
