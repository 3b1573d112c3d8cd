"""YOLO text labels: pixels of the source, and every malformed line named by file and line."""

from pathlib import Path

import numpy as np
import pytest

from edge.errors import DatasetError
from edge.evaluate.labels import open_labels
from edge.types import ImageSize

SIZE = ImageSize(width=200, height=100)
LABELS = ("person", "car", "bus")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "street.txt").write_text("1 0.5 0.5 0.2 0.4\n\n0 0.1 0.2 0.2 0.4\n")
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def test_boxes_are_pixels_of_the_source(folder):
    truth = open_labels(folder, LABELS, images=Path()).truth("street", SIZE)

    np.testing.assert_allclose(truth.xyxy, [[80, 30, 120, 70], [0, 0, 40, 40]], atol=1e-9)
    assert truth.class_id.tolist() == [1, 0]
    assert not truth.is_crowd.any()


def test_polygon_is_taken_as_the_box_around_it(folder):
    (folder / "mask.txt").write_text("2 0.1 0.1 0.5 0.2 0.3 0.9\n")

    truth = open_labels(folder, LABELS, images=Path()).truth("mask", SIZE)

    np.testing.assert_allclose(truth.xyxy, [[20, 10, 100, 90]])


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
        ("1 0.5 0.5 nan 0.4", "expected numbers from 0 to 1"),
        ("1 -0.5 0.5 0.2 0.4", "expected numbers from 0 to 1"),
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

    with pytest.raises(DatasetError, match=r"bad\.txt: expected a readable text file"):
        open_labels(folder, LABELS, images=Path()).truth("bad", SIZE)


def test_folder_without_labels_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"found no \.txt file"):
        open_labels(tmp_path, LABELS, images=Path())


def test_neither_folder_nor_json_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="found none of them"):
        open_labels(tmp_path / "none", LABELS, images=Path())
