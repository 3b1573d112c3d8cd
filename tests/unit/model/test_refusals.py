"""A model of another task or of another kind is never taken for a detector of ours, and its refusal says why."""

import re
from pathlib import Path

import pytest
from onnx import TensorProto
from onnxruntime.quantization import quantize_dynamic

from edge.errors import ModelError
from edge.model.inspect import ModelOverrides, inspect_model
from edge.types import HeadFamily
from tests.support import wrong_models as wrong
from tests.support.models import ultralytics_metadata, yolov5, yolov8, yolov10, yolox


def quantized_dynamically(path: Path, make) -> Path:
    source = make(path.with_name("float.onnx"))
    quantize_dynamic(source, path)
    return path


@pytest.mark.parametrize("make", [yolov5, yolov8, yolov10, yolox])
def test_a_model_that_is_quantized_dynamically_is_called_so_in_every_family(tmp_path, make):
    path = quantized_dynamically(tmp_path / "m.onnx", make)
    told = set()
    for _ in range(3):
        with pytest.raises(ModelError) as caught:
            inspect_model(path)
        told.add(str(caught.value))

    assert len(told) == 1
    assert re.fullmatch(
        rf"{path}: expected a float model or one with Q/DQ pairs, this one is quantized dynamically "
        r"\(\d+ DynamicQuantizeLinear, \d+ ConvInteger\); take the float model .*; edge-deploy calibrate makes INT8 .*",
        *told,
    )


REASONS = [
    (wrong.yolov8_pose, r"one is Mul of Add of Mul of Conv: keypoints"),
    (wrong.yolov8_masks, r"not every row after the boxes is a score \(sigmoid of a convolution\), one is Conv"),
    (wrong.yolov8_obb, r"one is Mul of Sub of Sigmoid of Conv: keypoints, masks, an angle"),
    (wrong.yolov8_corners, r"the boxes are corners \(x1 y1 x2 y2\)"),
    (wrong.yolov8_logits, r"not every row after the boxes is a score .*one is Conv"),
    (wrong.yolov8_raw_boxes, r"yolov8: the boxes are not decoded in the graph"),
    (wrong.yolov8_attributes, r"the 3 \+ 2 rows after the boxes come from different convolutions"),
    (wrong.yolov5_without_grid, r"the centres are not \(sigmoid x 2 \+ grid\) x stride"),
    (wrong.yolox_coarsest_first, r"levels of \[9, 36, 144\] cells follow each other, expected \[144, 36, 9\]"),
    (wrong.centre_head, r"arithmetic lies between the box convolutions and the output"),
    (wrong.yolov5_face, r"not every row after the boxes is a score .*one is Mul of Conv"),
    (wrong.yolov5_raw, r"a head without its decoding \(raw maps per level\).*got 3"),
    (wrong.yolov6, r"the objectness is a constant, as in YOLOv6"),
    (wrong.yolox_decoded, r"as YOLOX does with decode_in_inference"),
    (wrong.detr, r"DETR.*300 candidates"),
    (wrong.ssd, r"SSD.*boxes and scores apart"),
    (wrong.classifier, r"a classification model"),
]


@pytest.mark.parametrize(("build", "reason"), REASONS, ids=[build.__name__ for build, _ in REASONS])
def test_wrong_model_is_refused_with_its_reason(tmp_path, build, reason):
    with pytest.raises(ModelError, match=reason):
        inspect_model(build(tmp_path / "wrong.onnx"))


@pytest.mark.parametrize("family", HeadFamily)
@pytest.mark.parametrize("build", [build for build, _ in REASONS])
def test_wrong_model_is_refused_even_when_a_family_is_stated(tmp_path, build, family):
    with pytest.raises(ModelError):
        inspect_model(build(tmp_path / "wrong.onnx"), overrides=ModelOverrides(family=family))


def test_refusal_lists_what_was_seen_and_what_is_known(tmp_path):
    path = wrong.ssd(tmp_path / "ssd.onnx")

    with pytest.raises(ModelError) as caught:
        inspect_model(path)

    text = str(caught.value)
    assert text.startswith(f"{path}: not a detector")
    assert 'Inputs: "images" float32 (batch, 3, 96, 96)' in text
    assert 'Outputs: "boxes" float32 (batch, 189, 4), "scores" float32 (batch, 189, 5)' in text
    for known in ("YOLOv5, v7", "YOLOv8, v9, v10, 11, 12, 26", "YOLOv10, 26", "YOLOX"):
        assert known in text
    assert caught.value.hint is not None


def test_a_file_that_names_its_task_is_not_guessed_at(tmp_path):
    """A pose model with NMS inside has the shape of a DETR."""
    metadata = ultralytics_metadata(3, size=96, task="pose")

    with pytest.raises(ModelError, match='its task is "pose"') as caught:
        inspect_model(yolov10(tmp_path / "pose.onnx", top=100, metadata=metadata))

    assert "DETR" not in str(caught.value)


@pytest.mark.parametrize(("queries", "classes"), [(300, 2), (189, 1), (189, 185), (567, 3)])
def test_detr_is_refused_in_the_shape_of_every_family(tmp_path, queries, classes):
    """(300, 6) is YOLOv10's shape, (189, 5) has the cells of YOLOX, (567, 8) the anchors of YOLOv5."""
    with pytest.raises(ModelError):
        inspect_model(wrong.detr(tmp_path / "detr.onnx", queries=queries, classes=classes))


def test_detr_of_two_classes_is_told_from_yolov10_by_its_boxes(tmp_path):
    with pytest.raises(ModelError, match="yolov10: the boxes are sigmoids, as DETR predicts them"):
        inspect_model(wrong.detr(tmp_path / "detr.onnx", queries=300, classes=2))


def test_detr_is_refused_though_its_metadata_says_end_to_end(tmp_path):
    metadata = ultralytics_metadata(2, size=96, model="RT-DETR", end2end="True")
    with pytest.raises(ModelError, match="the boxes are sigmoids"):
        inspect_model(wrong.detr(tmp_path / "detr.onnx", queries=300, classes=2, metadata=metadata))


@pytest.mark.parametrize("task", ["segment", "pose", "obb", "classify"])
def test_another_task_in_the_metadata_is_refused_of_a_plain_detector(tmp_path, task):
    path = yolov8(tmp_path / "tiny.onnx", metadata=ultralytics_metadata(3, size=96, task=task))

    with pytest.raises(ModelError, match=f'its task is "{task}"'):
        inspect_model(path)


def test_half_input_is_refused_with_the_way_out(tmp_path):
    path = wrong.classifier(tmp_path / "half.onnx", dtype=TensorProto.FLOAT16)

    with pytest.raises(ModelError, match=r"float16 \(batch, 3, 96, 96\), expected float32; export it without half"):
        inspect_model(path)


def test_channels_last_is_named(tmp_path):
    path = wrong.classifier(tmp_path / "tf.onnx", channels_last=True)

    with pytest.raises(ModelError, match="channels last, as TensorFlow has it"):
        inspect_model(path)


def test_cells_of_another_input_size_are_refused(tmp_path):
    """The graph of a 96 pixel model, declared for 128 pixels by hand."""
    import onnx

    path = yolov8(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 128
    path.write_bytes(model.SerializeToString())

    with pytest.raises(ModelError, match=re.escape("not a detector that can be decoded")):
        inspect_model(path)


def test_end_to_end_without_count_of_classes_needs_labels(tmp_path):
    """Without names, the count comes from the divisor of class ids; a divisor that is no constant leaves it open."""
    import onnx

    path = yolov10(tmp_path / "tiny.onnx", batch=1)
    model = onnx.load(path)
    mod = next(node for node in model.graph.node if node.op_type == "Mod")
    shape = onnx.helper.make_node("Identity", [mod.input[0]], ["unknown"])
    mod.input[1] = "unknown"
    model.graph.node.insert(list(model.graph.node).index(mod), shape)
    path.write_bytes(model.SerializeToString())

    with pytest.raises(ModelError, match="state the labels"):
        inspect_model(path)
    assert inspect_model(path, overrides=ModelOverrides(labels=("a", "b", "c"))).labels == ("a", "b", "c")


def test_stride_in_the_metadata_has_to_fit_the_cells(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", metadata=ultralytics_metadata(3, size=96) | {"stride": "64"})

    with pytest.raises(ModelError, match=r"cells are of strides \(8, 16, 32\), the file says the largest is 64"):
        inspect_model(path)
