"""`roofline --machine this` and `compare` where TensorRT runs, over stand-ins: its layers against measured roofs."""

import json

import pytest

from edge.calibrate.table_file import write_table
from edge.engine.cuda import products, roofs
from edge.engine.tensorrt import layer_times
from edge.quantize.this_machine import precisions_here
from edge.types import Precision
from tests.integration.cli.test_calibrate import command
from tests.support import models
from tests.support.fake_gpu import fake_board
from tests.support.pictures import draw
from tests.support.tables import table_of


@pytest.fixture(autouse=True)
def board(monkeypatch):
    monkeypatch.setattr(products, "LEAST_S", 0.001)
    monkeypatch.setattr(roofs, "_LEAST_S", 0.001)
    monkeypatch.setattr(roofs, "SET_BYTES", (1 << 16, 1 << 20))
    monkeypatch.setattr(layer_times, "LEAST_S", 0.001)
    monkeypatch.setattr(layer_times, "WARM_S", 0.001)
    with fake_board() as device:
        yield device


@pytest.fixture
def place(tmp_path):
    write_table(tmp_path / "m.calib.json", table_of(models.yolox(tmp_path / "m.onnx")))
    return tmp_path


def test_the_layers_of_its_plans_stand_against_roofs_that_were_measured_on_the_gpu(place):
    told = command(
        "roofline", place / "m.onnx", "--table", place / "m.calib.json", "--machine", "this", "--json",
        "--html", place / "here.html",
    )  # fmt: skip
    (machine,) = json.loads(told.stdout)["machines"]

    assert machine["name"] == "Stand-in, 8 multiprocessors, measured"
    assert all(machine["peaks_per_s"][kind.value] > 0 for kind in Precision)
    assert [one["precision"] for one in machine["measured"]] == ["fp16", "int8"]
    for one in machine["measured"]:
        assert one["measured_s_per_frame"] > 0
        assert {"preprocess", "copy to the host"} <= {node["name"] for node in one["beside"]}
        assert len(one["layers"]) > 10
        assert all(layer["measured_s"] >= 0.9e-5 for layer in one["layers"])
    assert machine["measured_times_faster"] > 0
    assert "multiprocessors" in (place / "here.html").read_text()
    assert precisions_here() == (Precision.FP16, Precision.INT8)


def test_words_say_what_the_roof_is_of(place):
    told = command("roofline", place / "m.onnx", "--machine", "this").stdout

    assert "Stand-in, 8 multiprocessors, measured (this; tensorrt 10.3.0)" in told
    assert "peaks of products from registers: " in told


def test_a_comparison_has_the_times_of_both_and_lets_go_of_the_gpu(place, board):
    before = {name: board[name] for name in ("live", "contexts", "device_bytes")}
    draw(place / "images", 2)
    told = command(
        "compare", place / "m.onnx", "--table", place / "m.calib.json", "--images", place / "images", "--json"
    )

    layers = json.loads(told.stdout)["layers"]
    assert {layer["float_ms"] for layer in layers} == {0.01}
    assert {layer["int8_ms"] for layer in layers} == {0.01}
    assert {name: board[name] for name in before} == before


def test_capacity_does_not_take_the_gpus_time_for_the_processors(place):
    (place / "p.yaml").write_text(
        "version: 1\nmodel: {onnx: m.onnx, precision: fp32}\npublish: {jsonl: '-'}\n"
        "streams: [{id: a, uri: 'rtsp://x/a'}]\n"
    )

    told = command("capacity", place / "p.yaml", "--no-look", "--machine", "this", expected=7)

    assert "engine tensorrt: what it takes is not the processor's" in told.stderr
    assert "name the machine of the table" in told.stderr
