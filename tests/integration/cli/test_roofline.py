"""`edge-deploy roofline` as a user types it."""

import json
import re

import pytest

from edge.quantize.account import accounts_of
from edge.types import Precision
from tests.support import models
from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE


def roofline(*arguments, expected=0):
    return command("edge-deploy", "roofline", *arguments, expected=expected)


def test_one_machine_layer_by_layer():
    shown = roofline(MODEL, "--table", TABLE, "--machine", "orin-nano-8gb-super")
    paragraphs = shown.stdout.split("\n\n")

    assert paragraphs[0].splitlines() == [
        "Jetson Orin Nano 8 GB, Super (orin-nano-8gb-super)",
        "102.4 GB/s; dense peaks: INT8 33.4 TOPS (ridge 327), FP16 16.7 TFLOPS (ridge 163), FP32 2.09 TFLOPS "
        "(ridge 20) operations per byte",
        "advertised: 67 TOPS, sparse INT8, of GPU and DLA together; here 33.4 dense, 66.8 sparse on the GPU",
    ]
    assert len(paragraphs[1].splitlines()) == 1 + 73
    assert [line.split()[-2] for line in paragraphs[2].splitlines()[1:]] == ["FP32", "FP16", "INT8"]
    assert "These are bounds" in paragraphs[3]
    assert paragraphs[4].startswith("What INT8 is worth: 0.119 ms in FP16, 0.077 in INT8, at least: 1.55 times")
    assert "The table leaves 9 layers in float that could be in INT8" in paragraphs[4]
    assert [line.partition(":")[0] for line in paragraphs[5].splitlines()[::2]] == [
        "Kernel size", "Channels", "Output size", "Groups", "Fully connected",
    ]  # fmt: skip
    assert paragraphs[-1].startswith("Verdict: 13")  # thousand: 0.077 ms
    assert "1.55 times FP16" in paragraphs[-1]
    assert shown.stderr == "INT8 by traffic.calib.json\n"


def test_json_of_several_machines():
    found = json.loads(
        roofline(MODEL, "--machine", "rtx-3080", "--machine", "orin-nx-16gb/15w", "--batch", "4", "--json").stdout
    )

    assert (found["model"], found["batch"]) == ("traffic", 4)
    assert [machine["machine"] for machine in found["machines"]] == ["rtx-3080", "orin-nx-16gb/15W"]
    for machine in found["machines"]:
        assert [bound["precision"] for bound in machine["bounds"]] == ["fp32", "fp16", "int8"]
        for bound in machine["bounds"]:
            assert sum(layer["least_s"] for layer in bound["layers"]) == pytest.approx(4 * bound["least_s_per_frame"])
            assert 0 < bound["floor_s_per_frame"] <= bound["least_s_per_frame"]
    assert found["machines"][0]["ridge"]["fp32"] == pytest.approx(39.2, rel=0.01)


def test_all_machines_are_compared_when_none_is_named():
    *lines, verdict = roofline(MODEL).stdout.splitlines()

    assert re.match(r"Verdict: \d+ frames/s in INT8 on orin-nano-4gb to \d+ frames/s in INT8 on a100-40gb", verdict)
    assert {line.split()[-1] for line in lines[1:] if line} >= {
        "agx-orin-64gb",
        "orin-nano-4gb",
        "rtx-4090",
        "agx-thor-t5000",
    }
    listed = roofline("--list").stdout
    assert "agx-orin-64gb/MODE_30W" in listed
    assert "Jetson Orin NX 8 GB, Super, 40W" in listed
    machines = json.loads(roofline("--list", "--json").stdout)["machines"]
    assert {"agx-orin-64gb", "agx-orin-64gb/MODE_30W"} <= {one["machine"] for one in machines}


def test_figures_in_words_are_of_a_frame_and_of_the_power_mode():
    words = (MODEL, "--machine", "orin-nx-16gb/10W", "--batch", "4")
    told, _, summary, sentences, *_ = (part.splitlines() for part in roofline(*words).stdout.split("\n\n"))
    _, _, int8 = json.loads(roofline(*words, "--json").stdout)["machines"][0]["bounds"]
    bytes_of = {kind: one.moved_bytes for kind, one in accounts_of(MODEL, table=None, batch=4).by_precision.items()}
    row = summary[-1].split()

    assert float(row[0]) == pytest.approx(1e3 * int8["least_s_per_frame"], abs=0.001)
    assert float(row[2]) == pytest.approx(1 / int8["least_s_per_frame"], rel=0.01)
    share = bytes_of[Precision.INT8] / bytes_of[Precision.FP16]
    assert f"INT8 leaves {share:.0%} of the bytes of FP16, has 2 times" in " ".join(sentences)
    assert " ".join(told[2:]) == (
        "advertised: 100 TOPS, sparse INT8, of GPU and DLA together; here 10 dense, 20.1 sparse on the GPU and 8.81 "
        "sparse on its DLA in this power mode"
    )


def test_bad_input_says_what_to_do(tmp_path):
    other = models.yolov8(tmp_path / "other.onnx")
    fixed = models.yolov8(tmp_path / "fixed.onnx", batch=1)
    of_96 = models.yolov8(tmp_path / "open.onnx", dynamic_size=True)  # it notes no size, and is none for 640 x 640

    def told(*arguments):
        return roofline(*arguments, expected=2).stderr

    assert "name a MODEL" in told()
    assert "machine 'orin-nan-8gb': " in told(MODEL, "--machine", "orin-nan-8gb")
    assert "'30w'" in told(MODEL, "--machine", "orin-nano-8gb/30W")
    assert "0 is not in the range" in told(MODEL, "--batch", "0")
    assert "fixed to 1, got a batch of 8; ask for a batch of 1, or export" in told(fixed, "--batch", "8")
    assert "not a detector" in told(of_96)
    assert str(TABLE) in (wrong := told(other, "--table", TABLE))
    assert "model" in wrong
    assert "empty" in told(_empty(tmp_path / "empty.onnx"))


def _empty(path):
    path.write_bytes(b"")
    return path


def test_a_table_says_what_runs_in_int8():
    kept = set(json.loads(TABLE.read_text())["keep_float"])
    (machine,) = json.loads(roofline(MODEL, "--table", TABLE, "--machine", "rtx-3080", "--json").stdout)["machines"]
    convolutions = [layer for layer in machine["bounds"][-1]["layers"] if layer["operator"] == "Conv"]

    assert {layer["layer"] for layer in convolutions if layer["precision"] == "fp16"} == kept


def test_a_model_that_carries_pairs_has_its_layers_in_int8(tmp_path):
    made = tmp_path / "qdq.onnx"
    command("edge-deploy", "table", "qdq", TABLE, "--model", MODEL, "-o", made)

    by_pairs, by_table = (
        json.loads(roofline(*words, "--machine", "rtx-3080", "--json").stdout)["machines"][0]["bounds"]
        for words in ((made,), (MODEL, "--table", TABLE))
    )

    assert by_pairs == by_table[-1:]
