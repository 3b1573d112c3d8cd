"""Texts of exporters are read as literals, and nothing in them is believed that makes no sense."""

import pytest

from edge.model.tasks import ExportMetadata, read_metadata
from edge.types import ImageSize
from tests.support.models import ultralytics_metadata


def test_texts_of_ultralytics():
    metadata = read_metadata(ultralytics_metadata(2, size=640, end2end="True"))

    assert metadata.labels == ("thing 0", "thing 1")
    assert metadata.task == "detect"
    assert metadata.largest_stride == 32
    assert metadata.size == ImageSize(width=640, height=640)
    assert metadata.is_end_to_end


def test_image_size_is_height_first():
    assert read_metadata({"imgsz": "[384, 640]"}).size == ImageSize(width=640, height=384)


def test_no_texts_say_nothing():
    assert read_metadata({}) == ExportMetadata()


@pytest.mark.parametrize(
    "names",
    [
        "[str(1)]",
        "__import__('os').system('true')",
        "{0: 'a', 2: 'c'}",
        "{'a': 0}",
        "{}",
        "(" * 500,
        "'text'",
        "3",
        "{0: 'a'",
        "{1: 'a', 2: 'b'}",
        "person,car",
        "[" * 5000,
    ],
)
def test_names_that_are_not_numbered_from_0_are_told_and_not_believed(names):
    metadata = read_metadata({"names": names})

    assert (metadata.labels, metadata.strange_names) == (None, names)


@pytest.mark.parametrize(
    "names", ["['a', 'no']", '["a", "no"]', "{0: 'a', 1: 'no'}", "{'1': 'no', '0': 'a'}", '{"0": "a", "1": "no"}']
)
def test_names_as_a_list_and_by_number_of_python_and_of_json(names):
    metadata = read_metadata({"names": names})

    assert (metadata.labels, metadata.strange_names) == (("a", "no"), None)


def test_no_names_are_not_strange():
    assert read_metadata({"names": ""}).strange_names is None


@pytest.mark.parametrize("size", ["[640]", "[0, 640]", "'640'", "[1, 2, 3]", "[640.0, 640]"])
def test_sizes_that_are_none_are_ignored(size):
    assert read_metadata({"imgsz": size}).size is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"description": "Ultralytics YOLOv10n model"}, True),
        ({"description": "Ultralytics YOLOv10n model", "end2end": "False"}, False),
        ({"description": "Ultralytics YOLO26n model", "end2end": "True"}, True),
        ({"args": "{'nms': True, 'batch': 1}"}, True),
        ({"args": "{'nms': None}"}, False),
        ({"description": "Ultralytics YOLOv8n model"}, False),
    ],
)
def test_end_to_end_is_said_or_known(entries, expected):
    assert read_metadata(entries).is_end_to_end is expected
