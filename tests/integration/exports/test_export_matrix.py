"""The ordinary world of models: every family and variant that exporters write, each through the whole product.

The models are tiny and ours; `make exports` holds them against the real exporter (tests/exports).
"""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge.model.inspect import inspect_model
from edge.model.obstacles import report_on_model
from edge.vision.heads import head_of
from tests.support import models
from tests.support.exports import yolov7, yolox
from tests.support.exports.build import DETECTORS, HALF, REFUSED, WHOLE, build
from tests.support.exports.product import command, draw, faults_of

SLOW = pytest.mark.slow(reason="a whole calibration and two evaluations of a model of hundreds of nodes")
QUICK, OFTEN = {"v8-default"}, {"default", "dynamic", "e2e"}


def rows(variants):
    """Rows of the matrix; all but those of QUICK are slow."""
    listed = []
    for one in variants:
        marks = [] if one.id in QUICK else [SLOW]
        listed.append(pytest.param(one, id=one.id, marks=marks))
    return listed


@pytest.mark.parametrize(
    "variant", [pytest.param(one, id=one.id, marks=[] if one.name in OFTEN else [SLOW]) for one in DETECTORS]
)
def test_what_a_file_is_is_read_from_it(tmp_path, variant):
    spec = inspect_model(build(variant, tmp_path / "m.onnx"))

    assert spec.family.value == variant.reads_as
    assert (spec.preprocess.size.width, spec.preprocess.size.height) == (variant.width, variant.height)
    assert spec.batch == (None if variant.options.get("dynamic") else variant.options.get("batch", 1))
    assert spec.labels == variant.labels
    assert (spec.task, head_of(spec).is_turned) == (variant.task, variant.task == "obb")
    assert spec.strides == ((8, 16, 32) if variant.reads_as == "yolov8" else ())
    assert not spec.is_quantized


@pytest.mark.parametrize("variant", rows(WHOLE))
def test_an_export_goes_through_calibrate_qdq_and_evaluate_with_the_answers_of_onnxruntime(tmp_path, variant):
    assert faults_of(build(variant, tmp_path / "m.onnx"), tmp_path) == []


@SLOW
@pytest.mark.parametrize(
    "make",
    [models.yolov5, partial(models.yolov5, batch=1), models.yolov5_lite, models.yolov5_segment],
    ids=["dynamic", "one", "in place and with its maps", "segment"],
)
def test_the_head_of_yolov5_goes_the_same_way(tmp_path, make):
    """The head alone as its authors write it, on a backbone of ours.

    Weights times 0.85 leave fewer than the hundred detections of an image that count.
    """
    path = make(tmp_path / "m.onnx")
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 4 and tensor.dims[2] == tensor.dims[3]:
            weight = numpy_helper.to_array(tensor) * np.float32(0.85)
            tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    onnx.save(model, path)

    assert faults_of(path, tmp_path) == []


@pytest.mark.slow_but(
    "test_yolox_goes_the_same_way_with_its_focus_and_pixels_of_0_to_255",
    reason="a whole calibration and two evaluations of a model of hundreds of nodes",
)
@pytest.mark.parametrize("batch", [1, None], ids=["one", "dynamic"])
def test_yolox_goes_the_same_way_with_its_focus_and_pixels_of_0_to_255(tmp_path, batch):
    path = yolox.build(tmp_path / "m.onnx", batch=batch)
    spec = inspect_model(path)

    assert (spec.family.value, spec.batch, spec.strides) == ("yolox", batch, (8, 16, 32))
    assert (spec.preprocess.colour_order.value, spec.preprocess.scale) == ("bgr", 1.0)
    assert faults_of(path, tmp_path) == []


@pytest.mark.slow_but(reason="a whole calibration and two evaluations of a model of hundreds of nodes")
@pytest.mark.parametrize(("batch", "is_simplified"), [(1, True), (None, False)], ids=["one", "dynamic-plain"])
def test_yolov7_goes_the_same_way_with_its_boxes_by_anchors(tmp_path, batch, is_simplified):
    path = yolov7.build(tmp_path / "m.onnx", batch=batch, is_simplified=is_simplified)
    spec = inspect_model(path)

    assert (spec.family.value, spec.batch, spec.strides) == ("yolov5", batch, (8, 16, 32))
    assert faults_of(path, tmp_path) == []


def test_yolox_that_decodes_its_boxes_itself_is_refused_by_the_option_that_made_it(tmp_path):
    code, out, told = command("inspect", yolox.build(tmp_path / "m.onnx", is_decoded=True))

    assert (code, out) == (2, "")
    assert "--decode_in_inference" in told


@pytest.mark.parametrize("variant", HALF, ids=lambda one: one.id)
def test_a_float16_export_is_inspected_and_its_calibration_is_refused_with_the_same_reason(tmp_path, variant):
    model = build(variant, tmp_path / "m.onnx")
    spec = inspect_model(model)
    images, _ = draw(spec, tmp_path)
    (said,) = [line for line in report_on_model(spec).obstacles if "float16" in line]

    code, _, told = command("calibrate", model, "--images", images, "--method", "minmax", "-o", tmp_path / "t.json")

    assert code == 2
    assert "computes in float16" in said
    assert "computes in float16" in told
    assert "the engine chooses fp16 by itself" in said
    assert "the engine chooses fp16 by itself" in told
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("variant", REFUSED, ids=lambda one: one.id)
def test_a_model_of_another_task_is_refused_by_its_name(tmp_path, variant):
    code, out, told = command("inspect", build(variant, tmp_path / "m.onnx"))

    assert (code, out) == (2, "")
    assert variant.said in told
    assert "DETR" not in told
