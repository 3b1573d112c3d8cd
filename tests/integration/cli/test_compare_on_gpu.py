"""`compare` where TensorRT runs, over stand-ins: the times of its layers."""

import json

import pytest

from edge.calibrate.table import write_table
from tests.integration.cli.test_calibrate import command
from tests.support import models
from tests.support.fake_gpu import fake_board
from tests.support.pictures import draw
from tests.support.tables import table_of

pytestmark = pytest.mark.slow(reason="commands on further models and options")


@pytest.fixture(autouse=True)
def board():
    with fake_board() as device:
        yield device


@pytest.fixture
def place(tmp_path):
    write_table(tmp_path / "m.calib.json", table_of(models.yolox(tmp_path / "m.onnx")))
    return tmp_path


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
