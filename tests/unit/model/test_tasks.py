"""Models of other tasks: which rows are scores, by what the file says; where it does not, or is wrong, a refusal.

Texts of exporters are read as literals, and nothing in them is believed that makes no sense.
"""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge.errors import ModelError
from edge.model.inspect import inspect_model
from edge.model.tasks import ExportMetadata, read_metadata
from edge.types import ImageSize
from tests.support import models
from tests.support.exports.build import VARIANTS, build
from tests.support.models import ultralytics_metadata

POINTS = {"kpt_shape": "[4, 3]"}


def of(path, rows, *, classes=3, said=None, prototypes=0, **texts):
    """A model with `rows` behind the scores, whose file says `said` classes."""
    metadata = ultralytics_metadata(said or classes, size=96, **texts)
    return models.yolov8_beside(path, rows, classes=classes, metadata=metadata, prototypes=prototypes)


def without(path, *keys):
    model = onnx.load(path)
    kept = {one.key: one.value for one in model.metadata_props if one.key not in keys}
    onnx.helper.set_model_props(model, kept)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (12, {"task": "pose", **POINTS}),
        (12, {"task": "pose"}),
        (32, {"task": "segment", "prototypes": 32}),
        (32, {"task": "segment"}),
        (1, {"task": "obb"}),
    ],
    ids=["keypoints", "keypoints by the names", "prototypes", "coefficients by the names", "angle"],
)
def test_what_follows_the_scores_is_what_the_file_says(tmp_path, rows, texts):
    spec = inspect_model(of(tmp_path / "m.onnx", rows, **texts))

    assert (spec.family.value, spec.task, len(spec.labels)) == ("yolov8", texts["task"], 3)
    assert spec.output_name == "output0"
    assert any("boxes alone are decoded" in one for one in spec.evidence)


def test_classes_without_names_are_the_rows_that_keypoints_leave(tmp_path):
    spec = inspect_model(without(of(tmp_path / "m.onnx", 12, task="pose", **POINTS), "names"))
    assert len(spec.labels) == 3


def test_prototypes_of_masks_tell_a_file_without_texts(tmp_path):
    spec = inspect_model(models.yolov8_beside(tmp_path / "m.onnx", 32, prototypes=32))
    assert (spec.task, len(spec.labels)) == ("segment", 3)


def test_masks_of_yolov5_follow_its_scores_and_its_file_names_no_task(tmp_path):
    names = {"names": "['a', 'b', 'c']", "stride": "32"}
    spec = inspect_model(models.yolov5_segment(tmp_path / "m.onnx", metadata=names))
    assert (spec.family.value, spec.task, spec.labels) == ("yolov5", "segment", ("a", "b", "c"))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"rows": 12, "task": "pose", "kpt_shape": "[5, 3]"}, "does not say how many of the 15 rows"),
        ({"rows": 12, "task": "pose", "kpt_shape": "[3, 3]"}, "not every row after the boxes is a score"),
        ({"rows": 12, "task": "pose", "said": 2}, "more rows than the file says"),
        ({"rows": 12, "task": "pose", "said": 4}, "not every row after the boxes is a score"),
        ({"rows": 12, "task": "pose", "said": 15}, "does not say how many of the 15 rows"),
        ({"rows": 12, "task": "pose", "said": 2, **POINTS}, "has 3 classes, the file names: 2"),
        ({"rows": 32, "task": "segment", "prototypes": 16}, "not every row after the boxes is a score"),
        ({"rows": 32, "task": "segment", "said": 4, "prototypes": 32}, "has 3 classes, the file names: 4"),
        ({"rows": 2, "task": "obb"}, "not every row after the boxes is a score"),
        ({"rows": 12, "task": "classify"}, 'its task is "classify"'),
    ],
)
def test_a_file_that_is_wrong_about_its_rows_is_refused(tmp_path, case, reason):
    with pytest.raises(ModelError, match=reason):
        inspect_model(of(tmp_path / "m.onnx", **case))


def test_a_pose_model_that_says_neither_keypoints_nor_names_is_refused(tmp_path):
    path = without(of(tmp_path / "m.onnx", 12, task="pose"), "names")
    with pytest.raises(ModelError, match="does not say how many of the 15 rows"):
        inspect_model(path)


@pytest.fixture(scope="module")
def suppressed(tmp_path_factory):
    variant = next(one for one in VARIANTS if one.id == "v8-nms")
    return build(variant, tmp_path_factory.mktemp("nms") / "m.onnx")


def changed(source, path, change):
    model = onnx.load(source)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def inside(path):
    found = inspect_model(path).suppression
    return (found.score_threshold, found.iou_threshold, found.max_detections)


def test_what_a_suppression_inside_lets_through_is_read_from_its_nodes(suppressed):
    assert inside(suppressed) == (0.25, 0.7, 300)
    assert any("scores above 0.25, IoU 0.7, at most 300 boxes" in one for one in inspect_model(suppressed).evidence)


def test_a_threshold_that_the_file_names_goes_before_its_nodes(suppressed, tmp_path):
    def name(model):
        (args,) = (one for one in model.metadata_props if one.key == "args")
        args.value = args.value.replace("{", "{'conf': 0.4, 'iou': 0.6, ", 1)

    assert inside(changed(suppressed, tmp_path / "m.onnx", name)) == (0.4, 0.6, 300)


def test_a_score_threshold_of_the_suppression_counts_where_it_is_the_higher_one(suppressed, tmp_path):
    def raise_it(model):
        model.graph.initializer.append(numpy_helper.from_array(np.array([0.5], np.float32), "least"))
        (node,) = (one for one in model.graph.node if one.op_type == "NonMaxSuppression")
        node.input.append("least")

    assert inside(changed(suppressed, tmp_path / "m.onnx", raise_it)) == (0.5, 0.7, 300)


def test_a_suppression_that_the_file_alone_tells_of_has_unknown_thresholds(tmp_path):
    metadata = ultralytics_metadata(3, size=96, args="{'nms': True}")
    assert inside(models.yolov8_with_nms(tmp_path / "m.onnx", metadata=metadata)) == (None, None, 189)


@pytest.mark.parametrize("name", ["v8-nms", "11-pose-nms"])
def test_a_suppression_inside_that_no_text_explains_is_named_and_no_detr_is_seen(tmp_path, name):
    path = build(next(one for one in VARIANTS if one.id == name), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"suppresses inside \(NonMaxSuppression\)") as caught:
        inspect_model(without(path, "args", "task", "kpt_shape", "end2end", "names", "description"))
    assert "DETR" not in str(caught.value)


@pytest.mark.parametrize("make", [models.yolov8, models.yolov10, models.yolov5, models.yolox])
def test_a_model_that_does_not_suppress_has_none_inside(tmp_path, make):
    assert inspect_model(make(tmp_path / "m.onnx")).suppression is None


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
