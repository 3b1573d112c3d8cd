"""The ordinary world of models: every family and variant that exporters write, each through the whole product.

The models are tiny and ours; `make exports` holds them against the real exporter (tests/exports).
"""

import json
import logging
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge.calibrate.table import write_table
from edge.config.pipeline import load_pipeline
from edge.engine.section import read_model
from edge.model.inspect import inspect_model
from edge.model.obstacles import report_on_model
from edge.runtime.serve.engine import start_engine
from edge.vision.heads import head_of
from tests.integration.tensorrt.test_rtx_builder import built, job
from tests.support import models
from tests.support.exports import yolov7, yolox
from tests.support.exports.build import DETECTORS, HALF, REFUSED, VARIANTS, WHOLE, build
from tests.support.exports.product import command, draw, faults_of
from tests.support.logged import logged
from tests.support.tables import table_of

SLOW = pytest.mark.slow(reason="a whole calibration and two evaluations of a model of hundreds of nodes")
MANY_ENGINES = pytest.mark.slow(reason="builds many engines")
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


def made(name, path):
    return build(next(one for one in VARIANTS if one.id == name), path)


def log_of_start(folder, caplog, model):
    """Return what is logged where the engine of a pipeline with `model` starts."""
    (folder / "a.mp4").touch()
    path = folder / "p.yaml"
    path.write_text(
        f"version: 1\nmodel: {model}\nengine: {{kind: openvino}}\nstreams: [{{id: a, uri: a.mp4}}]\n"
        "publish: {mode: change, jsonl: '-'}\n",
        encoding="utf-8",
    )
    pipeline = load_pipeline(path)
    with caplog.at_level(logging.INFO):
        start_engine(pipeline, read_model(pipeline), None).engine.close()
    return logged(caplog)


@pytest.mark.parametrize(
    ("asked", "in_vain"),
    [
        ("score_threshold: 0.05, iou_threshold: 0.7", ["nothing below a score of 0.25"]),
        ("score_threshold: 0.3, iou_threshold: 0.45", ["IoU of 0.7, 0.45 has no effect"]),
        ("score_threshold: 0.25, iou_threshold: 0.7, max_detections: 500", ["at most 300 boxes"]),
        ("score_threshold: 0.25, iou_threshold: 0.7", []),
        ("precision: fp32", []),
    ],
)
def test_a_pipeline_is_told_which_of_its_thresholds_have_no_effect(tmp_path, caplog, asked, in_vain):
    made("v8-nms", tmp_path / "m.onnx")
    told = log_of_start(tmp_path, caplog, f"{{onnx: m.onnx, {asked}}}")

    assert told.count("suppressed-inside") == (1 if in_vain else 0)
    assert all(words in told for words in in_vain)


def test_a_pipeline_is_told_once_that_keypoints_are_dropped(tmp_path, caplog):
    made("11-pose-default", tmp_path / "m.onnx")
    told = log_of_start(tmp_path, caplog, "{onnx: m.onnx, score_threshold: 0.05}")

    assert told.count("boxes-only") == 1
    assert "suppressed-inside" not in told


def test_evaluate_says_that_it_measures_what_is_left_of_a_suppression_inside(tmp_path):
    model = made("v8-nms", tmp_path / "m.onnx")
    plain = made("v8-default", tmp_path / "plain.onnx")
    images, labels = draw(inspect_model(plain), tmp_path)
    code, out, told = command("evaluate", model, "--images", images, "--labels", labels, "--json")

    assert code == 0
    (note,) = [one for one in json.loads(out)["notes"] if "suppresses inside" in one]
    assert "0.25" in note
    assert note in told

    code, out, told = command("evaluate", plain, "--images", images, "--labels", labels, "--json")
    assert "suppresses inside" not in told


@MANY_ENGINES
@pytest.mark.parametrize("family", sorted({one.family for one in WHOLE}))
def test_the_real_builder_of_tensorrt_takes_every_variant(tmp_path, family):
    """In every precision where a family is new to it; then in INT8, which has all the others' nodes."""
    jobs = []
    for one in (one for one in WHOLE if one.family == family and one.name != "nms"):
        model = build(one, tmp_path / f"{one.id}.onnx")
        table = tmp_path / f"{one.id}.json"
        write_table(table, table_of(model))
        if one.name in OFTEN:
            jobs += [job(model, None, "fp32"), job(model, None, "fp16")]
        jobs.append(job(model, table, "int8"))

    for asked, made in zip(jobs, built(*jobs), strict=True):
        assert (asked["model"], asked["precision"], made["error"]) == (asked["model"], asked["precision"], None)
        assert made["batch"] == inspect_model(Path(asked["model"])).batch
        assert asked["precision"] != "int8" or made["int8_convolutions"] > 10


@MANY_ENGINES
@pytest.mark.parametrize("batch", [1, None], ids=["one", "dynamic"])
@pytest.mark.parametrize(("exporter", "convolutions"), [(yolox, 60), (yolov7, 50)], ids=["yolox", "yolov7"])
def test_the_real_builder_of_tensorrt_takes_yolov7_and_x(tmp_path, exporter, convolutions, batch):
    model, table = exporter.build(tmp_path / "m.onnx", batch=batch), tmp_path / "t.json"
    write_table(table, table_of(model))

    made = built(job(model, None, "fp32"), job(model, None, "fp16"), job(model, table, "int8"))

    assert [one["error"] for one in made] == [None] * 3
    assert made[2]["int8_convolutions"] > convolutions


@MANY_ENGINES
def test_a_builder_without_what_an_nms_inside_needs_names_the_node(tmp_path):
    model = build(next(one for one in WHOLE if one.id == "v8-nms"), tmp_path / "m.onnx")

    (made,) = built(job(model, None, "fp32"))

    assert 'NonZero "/NonZero"' in made["error"]
    assert "nms=True" in made["hint"]


# Convolutions alone, attention of each kind, and each kind of head.
SEARCHED = ["v8-default", "v10-e2e", "12-default", "26-default", "26-e2e"]
SEARCHED += ["11-pose-default", "26-segment-default", "26-obb-e2e"]


@SLOW
@pytest.mark.parametrize("variant", [one for one in WHOLE if one.id in SEARCHED], ids=lambda one: one.id)
def test_the_search_for_methods_ends_with_a_table_that_is_used(tmp_path, variant):
    assert faults_of(build(variant, tmp_path / "m.onnx"), tmp_path, method="auto") == []
