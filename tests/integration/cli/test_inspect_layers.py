"""`edge-deploy inspect --layers` on the demo's own model and table."""

import json

import pytest

from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE
from tests.support.models import yolov8


def account(*arguments):
    return json.loads(command("edge-deploy", "inspect", MODEL, "--layers", "--json", *arguments).stdout)


def test_the_account_of_the_float_model_agrees_with_its_cost():
    plain = json.loads(command("edge-deploy", "inspect", MODEL, "--json").stdout)
    found = account()

    assert (found["precision"], found["batch"], found["sha256"]) == ("fp16", 1, plain["sha256"])
    assert found["operations"] >= 2 * plain["macs"]
    assert found["parameters"] == plain["parameters"]
    weighted = [layer for layer in found["layers"] if layer["operator"] == "Conv"]
    assert sum(layer["operations"] for layer in weighted) == 2 * plain["macs"]


def test_a_table_says_what_runs_in_int8_and_the_batch_how_much():
    kept = set(json.loads(TABLE.read_text())["keep_float"])
    found = account("--table", TABLE, "--batch", "4")
    convolutions = [layer for layer in found["layers"] if layer["operator"] == "Conv"]

    assert (found["precision"], found["batch"]) == ("int8", 4)
    assert {layer["layer"] for layer in convolutions if layer["precision"] == "fp16"} == kept
    assert found["moved_bytes"] < account("--batch", "4")["moved_bytes"]


def test_the_same_as_lines():
    shown = command("edge-deploy", "inspect", MODEL, "--layers", "--table", TABLE)
    lines = shown.stdout.splitlines()

    assert lines[0].split() == [
        "in",
        "operations",
        "weights",
        "B",
        "read",
        "B",
        "written",
        "B",
        "op/B",
        "operator",
        "layer",
    ]
    assert lines[1].endswith("Conv+Sigmoid+Mul      /detector/stem/stem.0/conv/Conv")
    assert lines[-1].startswith("73 layers for 1 frame: 476 Mop, 573 k parameters, ")
    assert shown.stderr == "INT8 by traffic.calib.json\n"


def test_without_a_table_int8_is_what_can_be():
    shown = command("edge-deploy", "inspect", MODEL, "--layers", "--precision", "int8")

    assert "if every layer that can be quantized were" in shown.stderr


def test_misuse_says_what_to_do(tmp_path):
    other = yolov8(tmp_path / "other.onnx")
    wrong = command("edge-deploy", "inspect", other, "--layers", "--table", TABLE, expected=2).stderr
    apart = command("edge-deploy", "inspect", MODEL, "--table", TABLE, expected=2).stderr

    assert "another model" in wrong or "this model" in wrong
    assert "add --layers" in apart
    assert (
        "0 is not in the range"
        in command("edge-deploy", "inspect", MODEL, "--layers", "--batch", "0", expected=2).stderr
    )


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_model_that_carries_pairs_has_its_account_in_int8(tmp_path, precision):
    made = tmp_path / "qdq.onnx"
    command("edge-deploy", "table", "qdq", TABLE, "--model", MODEL, "-o", made)

    found = json.loads(command("edge-deploy", "inspect", made, "--layers", "--json").stdout)
    refused = command("edge-deploy", "inspect", made, "--layers", "--precision", precision, expected=2).stderr

    assert found["precision"] == "int8"
    assert found["layers"] == account("--table", TABLE)["layers"]
    assert f"its account is in int8, asked for in {precision}" in refused
