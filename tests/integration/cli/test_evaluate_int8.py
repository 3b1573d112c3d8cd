"""`edge-deploy evaluate` in INT8: by a calibration table, or of a model that carries Q/DQ pairs."""

import json

import cv2
import numpy as np
import pytest

from edge.calibrate.apply import quantized_model
from edge.calibrate.table import TensorRange
from edge.calibrate.table_file import read_table
from edge.model.inspect import inspect_model
from tests.integration.cli.test_commands import command
from tests.support import models
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import table_of, write_table_of

IMAGES = 4


@pytest.fixture
def place(tmp_path):
    """Images, a model, its table, its Q/DQ model; the labels are what the Q/DQ model finds in ONNX Runtime."""
    random = np.random.default_rng(0)
    model = models.yolov10(tmp_path / "m.onnx")
    table = write_table_of(tmp_path / "t.json", model, tensors=coarse(table_of(model).tensors))
    quantized = quantized_model(read_table(table), inspect_model(model)).model
    (tmp_path / "q.onnx").write_bytes(quantized)
    engine = OnnxRuntimeEngine(inspect_model(tmp_path / "q.onnx"), max_batch=IMAGES)
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
    for index in range(IMAGES):
        engine.canvases[0][index] = random.integers(0, 256, (96, 96, 3), np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"{index}.png"), engine.canvases[0][index][..., ::-1])
    engine.start(0, IMAGES)
    for index, rows in enumerate(engine.wait(0)):
        (tmp_path / "labels" / f"{index}.txt").write_text("".join(labels(rows)))
    return tmp_path


def coarse(tensors):
    """Ranges so wide that INT8 finds something else than float does; that of the input cannot be any but its own."""
    wide = {name: TensorRange(amax=20 * tensor.amax, method="wide") for name, tensor in tensors.items()}
    return {**wide, "images": tensors["images"]}


def labels(rows):
    """YOLO text of the boxes (N, 6) that have an area inside the image; some overlap, as in a crowd."""
    for left, top, right, bottom, _, class_id in np.clip(rows, 0, [96, 96, 96, 96, 1, 9]) / [96, 96, 96, 96, 1, 1]:
        if right - left > 0.02 and bottom - top > 0.02:
            box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
            yield f"{class_id:.0f} {' '.join(f'{value:.6f}' for value in box)}\n"


def evaluate(place, model, *options, expected=0):
    folders = ("--images", place / "images", "--labels", place / "labels")
    return command("edge-deploy", "evaluate", place / model, *folders, *options, expected=expected)


def measured(place, model, *options):
    return json.loads(evaluate(place, model, "--json", *options).stdout)


def test_a_table_makes_it_int8_and_the_accuracy_is_that_of_the_qdq_model(place):
    by_table = measured(place, "m.onnx", "--table", place / "t.json")
    as_it_is = measured(place, "q.onnx", "--precision", "int8")
    exact = measured(place, "m.onnx")

    assert by_table["boxes"] > 10
    assert by_table["map50_95"] > 0.95  # of what ONNX Runtime finds with the same Q/DQ model
    assert by_table["map50_95"] == as_it_is["map50_95"]
    assert exact["map50_95"] < 0.9
    assert by_table["precision"] == as_it_is["precision"] == "int8"
    assert by_table["int8_mac_share"] == as_it_is["int8_mac_share"] == 1.0
    assert (by_table["table"], as_it_is["table"], exact["table"]) == (str(place / "t.json"), None, None)
    assert (exact["precision"], exact["int8_mac_share"]) == ("fp32", None)


def test_share_and_table_are_told(place):
    shown = evaluate(place, "m.onnx", "--table", place / "t.json", "--precision", "int8").stdout
    of_pairs = evaluate(place, "q.onnx").stdout

    assert f"100.0% of the multiply-accumulates, by {place / 't.json'}" in shown
    assert "by the model's own Q/DQ pairs" in of_pairs
    assert "multiply" not in evaluate(place, "m.onnx").stdout


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_table_for_another_precision_is_refused(place, precision):
    told = evaluate(place, "m.onnx", "--table", place / "t.json", "--precision", precision, expected=2).stderr

    assert f"precision {precision}: {place / 't.json'} is for int8; leave one of the two out" in told


def test_a_table_for_a_model_that_carries_pairs_is_refused(place):
    told = evaluate(place, "q.onnx", "--table", place / "t.json", expected=2).stderr

    assert "carries Q/DQ pairs already" in told
    assert f"edge-deploy table import {place / 'q.onnx'} -o TABLE --float-model FLOAT.onnx" in told


def test_a_table_of_another_model_is_refused(place):
    models.yolov10(place / "other.onnx", seed=1)

    assert "t.json: made for model m" in evaluate(place, "other.onnx", "--table", place / "t.json", expected=2).stderr
