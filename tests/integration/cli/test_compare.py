"""`edge-deploy compare` as a user types it."""

import json
import platform

import cv2
import numpy as np
import pytest

from edge.evaluate.layers import MOST_ADDED_NOISE, LayerVerdict
from tests.support import models
from tests.support.command_line import apart, command
from tests.support.fake_gpu import fake_board
from tests.support.tables import calibrated

KEYS = ["model", "table", "images", "engine", "output_sqnr_db", "layers"]
LAYER_KEYS = [
    "name", "op_type", "precision", "sqnr_db", "input_sqnr_db", "own_sqnr_db", "clipped_share", "dead_share",
    "macs", "mac_share", "float_ms", "int8_ms", "verdict",
]  # fmt: skip


@pytest.fixture
def model(tmp_path):
    return calibrated(tmp_path, models.yolov8(tmp_path / "m.onnx", batch=1))


def compare(model, *options, table=None, expected=0, by=command):
    table = model.table_with() if table is None else table
    places = ("--table", table, "--images", model.images)
    return by("edge-deploy", "compare", model.spec.path, *places, *options, expected=expected)


def test_json_has_the_stable_keys_and_no_number_that_is_none(model):
    shown = compare(model, "--json", "--limit", 2).stdout

    content = json.loads(shown, parse_constant=pytest.fail)
    assert list(content) == KEYS
    assert (content["model"], content["images"]) == ("m", 2)
    assert content["engine"].startswith("openvino ")
    assert all(list(layer) == LAYER_KEYS for layer in content["layers"])
    assert content["layers"][0]["input_sqnr_db"] is None  # pixels have no noise
    assert {layer["verdict"] for layer in content["layers"]} <= {verdict.value for verdict in LayerVerdict}


def test_the_text_is_a_line_for_each_layer_and_a_summary(model):
    kept = next(name for name in model.table.tensors if name.startswith("Conv_9"))
    done = compare(model, table=model.table_with(keep_float=(kept,)))

    lines = done.stdout.splitlines()
    assert sum("  Conv  " in line for line in lines) == 15
    assert sum(line.startswith("*") for line in lines) <= 10 + 1
    assert sum(line.startswith("* the ") for line in lines) == 1  # what the stars mean
    assert "  float  " in next(line for line in lines if line.endswith(f"  {kept}"))
    assert lines[-2].startswith("Output ")
    assert "(this machine)" in lines[-2]
    assert lines[-1].startswith("Verdict: ")


def test_pictures_that_cannot_be_decoded_are_all_named_first_and_left_out_when_asked(model):
    (model.images / "cut.png").write_bytes(b"")
    (model.images / "page.jpg").write_bytes(b"<!DOCTYPE html>")
    told = compare(model, expected=2).stderr
    done = compare(model, "--skip-undecodable", "--json")

    assert "2 of 5 images cannot be decoded: cut.png, page.jpg" in told
    assert "--skip-undecodable" in told
    assert "2 of the files could not be decoded and were left out: cut.png, page.jpg" in done.stderr
    assert json.loads(done.stdout)["images"] == 3


def test_html_is_written_beside_the_json(model):
    page = model.folder / "layers.html"
    content = json.loads(compare(model, "--json", "--html", page).stdout)

    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert all(layer["name"] in text for layer in content["layers"])


def test_help_says_the_rule_that_is_computed():
    shown = command("edge-deploy", "compare", "--help").stdout

    assert f"more than {MOST_ADDED_NOISE:.0%} of the power" in shown
    assert all(f"  {verdict.value}  " in shown for verdict in LayerVerdict)
    assert "not of a Jetson" in " ".join(shown.split())


@pytest.mark.slow(reason="a process of its own, which calibrates")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have no such instruction")
@pytest.mark.parametrize("name", ["compare", "calibrate"])
def test_that_int8_is_computed_in_float_is_said_once(model, monkeypatch, name):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # no VNNI
    if name == "compare":
        told = compare(model, "--limit", 2, by=apart).stderr
    else:
        for number in range(5):
            pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
            cv2.imwrite(str(model.images / f"more-{number}.png"), pixels)
        place = ("-o", model.folder / "new.calib.json")
        told = apart("edge-deploy", "calibrate", model.spec.path, "--images", model.images, *place).stderr

    assert told.count("int8 is computed in float, at its speed reason=INT8 sums saturate here (no VNNI)") == 1


@pytest.mark.slow(reason="commands on further models and options")
def test_a_comparison_where_tensorrt_runs_has_the_times_of_both_and_lets_go_of_the_gpu(model):
    with fake_board() as board:
        before = {name: board[name] for name in ("live", "contexts", "device_bytes")}
        layers = json.loads(compare(model, "--json").stdout)["layers"]

        assert {layer["float_ms"] for layer in layers} == {0.01}
        assert {layer["int8_ms"] for layer in layers} == {0.01}
        assert {name: board[name] for name in before} == before
