"""`edge-deploy evaluate` in INT8: by a calibration table, or of a model that carries Q/DQ pairs."""

import json

import cv2
import numpy as np
import onnx
import pytest

from edge.calibrate.table import TensorRange, read_table
from edge.model.inspect import inspect_model
from tests.support import models
from tests.support.command_line import command
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import quantized_model, table_of, with_joint_scale, write_table_of

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

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


def test_pictures_that_cannot_be_decoded_are_all_named_first_and_left_out_when_asked(place):
    (place / "images" / "cut.png").write_bytes(b"")
    (place / "images" / "page.jpg").write_bytes(b"<!DOCTYPE html>")
    told = evaluate(place, "m.onnx", expected=2).stderr
    done = evaluate(place, "m.onnx", "--skip-undecodable", "--json")

    assert f"2 of {IMAGES + 2} images cannot be decoded: cut.png, page.jpg" in told
    assert "--skip-undecodable" in told
    assert "2 of the files could not be decoded and were left out: cut.png, page.jpg" in done.stderr
    assert json.loads(done.stdout)["images"] == IMAGES


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_table_for_another_precision_is_refused(place, precision):
    told = evaluate(place, "m.onnx", "--table", place / "t.json", "--precision", precision, expected=2).stderr

    assert f"precision {precision}: {place / 't.json'} is for int8; leave one of the two out" in told


def test_a_table_for_a_model_that_carries_pairs_is_refused(place):
    told = evaluate(place, "q.onnx", "--table", place / "t.json", expected=2).stderr

    assert f"edge-deploy table import {place / 'q.onnx'} -o TABLE --float-model FLOAT.onnx" in told


def test_a_table_of_another_model_is_refused(place):
    models.yolov10(place / "other.onnx", seed=1)

    assert "t.json: " in evaluate(place, "other.onnx", "--table", place / "t.json", expected=2).stderr


def test_a_model_that_carries_pairs_is_measured_without_them_in_float(place):
    """What it is to be held against: the float model that the pairs were put into, whose weights went through int8."""
    by_pairs, without = measured(place, "q.onnx"), measured(place, "q.onnx", "--precision", "fp32")
    exact = measured(place, "m.onnx")

    assert (without["precision"], without["int8_mac_share"]) == ("fp32", None)
    assert by_pairs["map50_95"] - without["map50_95"] > 0.1  # the labels are what the pairs find
    assert abs(without["map50_95"] - exact["map50_95"]) < 0.1


def test_pairs_that_erase_scores_are_refused_and_measured_without(place):
    model = onnx.load(place / "q.onnx")
    with_joint_scale(model)
    onnx.save(model, place / "joint.onnx")

    told = evaluate(place, "joint.onnx", expected=2).stderr

    assert 'QuantizeLinear "joint_quantize" (level 5): a level is wider than half a score' in told
    without = (measured(place, name, "--precision", "fp32") for name in ("joint.onnx", "q.onnx"))
    assert len({one["map50_95"] for one in without}) == 1


def test_what_is_missing_or_doubtful_is_told_beside_the_result(place):
    (place / "labels" / "2.txt").unlink()
    (place / "classes.txt").write_text("".join(f"Ding {number}\n" for number in range(3)))

    done = evaluate(place, "q.onnx", "--json")

    shown = json.loads(done.stdout)
    assert (shown["unlabelled"], shown["classes_by"]) == (1, "order")
    assert "warning: 1 of 4 images have no labels, and were taken as empty: 2\n" in done.stderr
    assert f"warning: {shown['notes'][0]}\n" in done.stderr
    assert "3 of 3 class names are unknown to the model" in shown["notes"][0]


def test_a_model_whose_output_is_nan_is_refused(place):
    model = onnx.load(place / "m.onnx")
    onnx.save(models.with_nan(model), place / "nan.onnx")

    assert "nan: the model's output is not a number" in evaluate(place, "nan.onnx", expected=2).stderr


def test_a_damaged_picture_is_named(place):
    content = cv2.imencode(".jpg", cv2.imread(str(place / "images" / "0.png")))[1].tobytes()
    (place / "images" / "9.jpg").write_bytes(content[: len(content) // 2] + content[len(content) * 2 // 3 :])

    assert "9.jpg: " in evaluate(place, "q.onnx", expected=2).stderr
