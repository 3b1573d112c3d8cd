"""An export that suppresses inside: what a pipeline and a measurement ask of it in vain is said."""

import json
import logging

import pytest

from edge.config.pipeline import load_pipeline
from edge.engine.section import read_model
from edge.model.inspect import inspect_model
from edge.runtime.serve.engine import start_engine
from tests.support.exports.build import VARIANTS, build
from tests.support.exports.product import command, draw
from tests.support.logged import logged


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
