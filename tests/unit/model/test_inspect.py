"""Each family is recognised from the file alone, with its strides; what is stated has to agree; obstacles are said."""

import numpy as np
import onnx
import pytest

from edge.errors import ModelError
from edge.model.families import strides_of
from edge.model.inspect import COCO_LABELS, ModelOverrides, inspect_model
from edge.model.obstacles import report_on_model
from edge.types import ColourOrder, HeadFamily, ImageSize, PadPosition
from tests.support.exports.product import canvases_for, difference, output_of_onnxruntime, output_of_product
from tests.support.models import (
    ultralytics_metadata,
    yolov5,
    yolov5_dynamic,
    yolov8,
    yolov8_reversed,
    yolov8_with_nms,
    yolov10,
    yolox,
)
from tests.support.wrong_models import with_qdq

FAMILIES = [
    (yolov5, HeadFamily.YOLOV5, "output0", (8, 16, 32)),
    (yolov8, HeadFamily.YOLOV8, "output0", (8, 16, 32)),
    (yolov10, HeadFamily.YOLOV10, "output0", ()),
    (yolox, HeadFamily.YOLOX, "output", (8, 16, 32)),
]


@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize(("build", "family", "output", "strides"), FAMILIES)
def test_family_is_read_from_the_graph(tmp_path, build, family, output, strides, batch):
    spec = inspect_model(build(tmp_path / "tiny.onnx", batch=batch, classes=3))

    assert spec.family is family
    assert (spec.name, spec.input_name, spec.output_name) == ("tiny", "images", output)
    assert spec.strides == strides
    assert spec.batch == batch
    assert spec.labels == ("class-0", "class-1", "class-2")
    assert spec.preprocess.size == ImageSize(width=96, height=96)
    assert not spec.is_quantized
    assert len(spec.evidence) >= 3


def test_yolov10_gathered_by_image_and_row(tmp_path):
    spec = inspect_model(yolov10(tmp_path / "tiny.onnx", batch=1, indexed=True))

    assert spec.family is HeadFamily.YOLOV10


def test_preprocess_goes_with_the_family(tmp_path):
    ultralytics = inspect_model(yolov8(tmp_path / "v8.onnx")).preprocess
    megvii = inspect_model(yolox(tmp_path / "x.onnx")).preprocess

    assert (ultralytics.colour_order, ultralytics.pad_position) == (ColourOrder.RGB, PadPosition.CENTRE)
    assert ultralytics.scale == pytest.approx(1 / 255)
    assert (megvii.colour_order, megvii.pad_position, megvii.scale) == (ColourOrder.BGR, PadPosition.TOP_LEFT, 1.0)
    assert ultralytics.pad_value == megvii.pad_value == 114


def test_eighty_classes_without_names_are_those_of_coco(tmp_path):
    spec = inspect_model(yolov8(tmp_path / "tiny.onnx", classes=80))

    assert spec.labels == COCO_LABELS
    assert (len(set(COCO_LABELS)), COCO_LABELS[0], COCO_LABELS[79]) == (80, "person", "toothbrush")


def test_eighty_classes_whose_names_are_not_understood_are_not_called_by_those_of_coco(tmp_path):
    metadata = {**ultralytics_metadata(80, size=96), "names": ",".join(f"thing {i}" for i in range(80))}
    spec = inspect_model(yolov8(tmp_path / "tiny.onnx", classes=80, metadata=metadata))

    assert spec.labels == tuple(f"class-{i}" for i in range(80))
    assert any("'thing 0,thing 1" in sentence and "model.labels" in sentence for sentence in spec.evidence)


def test_labels_come_from_the_file(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", metadata=ultralytics_metadata(3, size=96))

    spec = inspect_model(path)

    assert spec.labels == ("thing 0", "thing 1", "thing 2")
    assert any("YOLOv8n model trained on things.yaml" in sentence for sentence in spec.evidence)


def test_labels_of_another_number_are_refused(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", metadata=ultralytics_metadata(4, size=96))

    with pytest.raises(ModelError, match="the output has 3 classes, the file names: 4"):
        inspect_model(path)


def test_dynamic_size_is_that_of_the_metadata(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", dynamic_size=True, metadata=ultralytics_metadata(3, size=96))

    assert inspect_model(path).preprocess.size == ImageSize(width=96, height=96)


def test_yolov5_exported_by_its_own_dynamic_is_taken_as_documented(tmp_path):
    spec = inspect_model(yolov5_dynamic(tmp_path / "yolov5s.onnx"))
    canvases = canvases_for(spec, 2)

    assert (spec.family, spec.batch, spec.labels[0]) == (HeadFamily.YOLOV5, None, "thing 0")
    assert spec.preprocess.size == ImageSize(width=640, height=640)
    assert difference(spec, output_of_product(spec, canvases), output_of_onnxruntime(spec, canvases)) < 1e-4


def test_dynamic_size_without_metadata_is_the_usual_one_which_is_told_or_a_stated_one(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", dynamic_size=True)
    usual = inspect_model(yolov8(tmp_path / "usual.onnx", size=640, dynamic_size=True))

    assert usual.preprocess.size == ImageSize(width=640, height=640)
    assert any("any size" in sentence and "model.input_size" in sentence for sentence in usual.evidence)
    with pytest.raises(ModelError, match="not a detector"):  # its cells are fixed to those of 96 x 96
        inspect_model(path)
    stated = ModelOverrides(input_size=ImageSize(width=96, height=96))
    assert inspect_model(path, overrides=stated).preprocess.size == ImageSize(width=96, height=96)


def test_fixed_size_contradicts_another_stated_one(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")

    with pytest.raises(ModelError, match=r"^got 128x96, the input of the model is .*96, 96"):
        inspect_model(path, overrides=ModelOverrides(input_size=ImageSize(width=128, height=96)))


def test_stated_labels_win_over_those_of_the_file(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx", metadata=ultralytics_metadata(3, size=96))

    spec = inspect_model(path, overrides=ModelOverrides(labels=("a", "b", "c")))

    assert spec.labels == ("a", "b", "c")


def test_stated_labels_of_another_number_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"^2 labels, the model has 3 classes; give one for each"):
        inspect_model(yolov8(tmp_path / "tiny.onnx"), overrides=ModelOverrides(labels=("a", "b")))


def test_stated_family_that_the_graph_contradicts_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"^got yolov5, which the model is not: .*7 rows are not 3 anchors"):
        inspect_model(yolov8(tmp_path / "tiny.onnx"), overrides=ModelOverrides(family=HeadFamily.YOLOV5))


def test_stated_family_that_agrees_changes_nothing(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")

    assert inspect_model(path, overrides=ModelOverrides(family=HeadFamily.YOLOV8)) == inspect_model(path)


def test_model_with_qdq_nodes_is_recognised_through_them(tmp_path):
    quantized = with_qdq(yolov8(tmp_path / "float.onnx"), tmp_path / "int8.onnx")

    spec = inspect_model(quantized)

    assert spec.is_quantized
    assert spec.family is HeadFamily.YOLOV8


def test_sha256_is_that_of_the_file(tmp_path):
    import hashlib

    path = yolov8(tmp_path / "tiny.onnx")

    assert inspect_model(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_nodes_out_of_order_are_put_in_order(tmp_path):
    import onnx

    path = yolov8(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path.write_bytes(model.SerializeToString())

    assert inspect_model(path).family is HeadFamily.YOLOV8


def test_nms_inside_is_believed_when_the_file_says_so(tmp_path):
    metadata = ultralytics_metadata(3, size=96, args="{'nms': True}")

    spec = inspect_model(yolov8_with_nms(tmp_path / "said.onnx", metadata=metadata))

    assert spec.family is HeadFamily.YOLOV10
    assert spec.labels == ("thing 0", "thing 1", "thing 2")
    with pytest.raises(ModelError, match="not the score and the class that a TopK has chosen"):
        inspect_model(yolov8_with_nms(tmp_path / "unsaid.onnx"))


def test_graph_that_cannot_be_followed_needs_a_stated_family(tmp_path):
    path = yolov8_reversed(tmp_path / "tiny.onnx")

    with pytest.raises(ModelError, match=r"yolov8: the shape fits, but the slice .* takes rows in steps of -1"):
        inspect_model(path)
    spec = inspect_model(path, overrides=ModelOverrides(family=HeadFamily.YOLOV8))
    assert spec.family is HeadFamily.YOLOV8
    assert "the family is taken as it is stated" in spec.evidence[-1]


@pytest.mark.parametrize(
    ("cells", "width", "height", "strides"),
    [
        (8400, 640, 640, (8, 16, 32)),  # Ultralytics at 640
        (3549, 416, 416, (8, 16, 32)),  # YOLOX nano
        (34000, 640, 640, (4, 8, 16, 32)),  # P2
        (8500, 640, 640, (8, 16, 32, 64)),  # P6: 25500 anchors / 3
        (2000, 640, 640, (16, 32)),  # tiny
        (5040, 640, 384, (8, 16, 32)),
        (300, 640, 640, None),
        (8400, 320, 320, (4, 8, 16)),
        (8400, 416, 416, None),
        (8399, 640, 640, None),
        (0, 640, 640, None),
        (18900, 640, 640, None),
    ],
)
def test_cells_belong_to_neighbouring_strides(cells, width, height, strides):
    assert strides_of(cells, ImageSize(width=width, height=height)) == strides


def test_size_has_to_be_a_multiple_of_the_largest_stride():
    assert strides_of(81 * 81 + 40 * 40 + 20 * 20, ImageSize(width=650, height=650)) is None


def _sentences(path):
    return "\n".join(report_on_model(inspect_model(path)).obstacles)


def test_depthwise_mixed_output_and_fixed_batch_are_said(tmp_path):
    text = _sentences(yolov8(tmp_path / "tiny.onnx", batch=1))

    assert "3 of its convolutions are depthwise" in text
    assert 'Its output "output0" joins boxes and scores' in text
    assert "Its batch is fixed to 1" in text
    assert "Q/DQ" not in text


def test_dynamic_batch_is_no_obstacle(tmp_path):
    assert "batch" not in _sentences(yolov5(tmp_path / "tiny.onnx"))


def test_qdq_nodes_are_counted(tmp_path):
    path = with_qdq(yolov8(tmp_path / "float.onnx"), tmp_path / "int8.onnx")

    assert "It carries 2 Q/DQ nodes already" in _sentences(path)


def test_integer_operators_are_named(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    stored = {"m": np.ones((2, 2), np.uint8), "s": np.float32(0.5), "z": np.uint8(0)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items())
    node = onnx.helper.make_node("QLinearMatMul", ["m", "s", "z", "m", "s", "z", "s", "z"], ["q"], name="ql")
    model.graph.node.insert(0, node)
    path.write_bytes(model.SerializeToString())

    assert "It has 1 QLinearMatMul nodes, integer operators that TensorRT does not run" in _sentences(path)


def test_old_opset_is_said(tmp_path):
    path = yolov10(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    report = report_on_model(inspect_model(path))

    assert model.opset_import[0].version == 17
    assert not any("opset" in sentence for sentence in report.obstacles)
    assert report.cost.macs > 0
