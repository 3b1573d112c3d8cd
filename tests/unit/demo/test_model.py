"""The shipped model and its table: the files that their records describe, and how good they are, INT8 included."""

import hashlib
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.calibrate.findings import Severity, facts_of_model
from edge.calibrate.lint import lint_table
from edge.calibrate.table import read_table, table_text
from edge.model.inspect import inspect_model
from edge.types import ImageSize
from tools.street.scene import CLASSES, Scene

ROOT = Path(__file__).parents[3]
MODEL, PATH = ROOT / "edge/demo/model/traffic.onnx", ROOT / "calib_cache/traffic.calib.json"
RECORD = json.loads(MODEL.with_suffix(".json").read_text())


def test_the_record_describes_this_file():
    content = MODEL.read_bytes()
    assert RECORD["sha256"] == hashlib.sha256(content).hexdigest()
    assert RECORD["bytes"] == len(content) < 3_000_000
    assert tuple(RECORD["classes"]) == CLASSES


def test_it_was_judged_on_scenes_it_was_not_trained_on_and_is_good_enough():
    first, last = RECORD["training"]["scene_seeds"]
    for figures in RECORD["held_out"]:
        low, high = figures["scene_seeds"]
        assert high < first or low > last
        assert figures["map50"] >= 0.9


def test_it_finds_every_large_vehicle_of_an_unseen_scene():
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is missing: install the dev extra")
    image, truth = Scene(3, ImageSize(width=640, height=360)).frame(40)
    canvas = np.full((320, 320, 3), 114, np.uint8)
    canvas[70:250] = image[::2, ::2]
    feed = (canvas.transpose(2, 0, 1)[None] / 255).astype(np.float32)

    output = onnxruntime.InferenceSession(MODEL).run(["output0"], {"images": feed})[0][0]

    centres, scores = output[:2].T * 2 - [0, 140], output[4:].T
    for (x0, y0, x1, y1), class_id in zip(truth.xyxy, truth.class_id, strict=True):
        if (x1 - x0) * (y1 - y0) > 2000:
            near = np.abs(centres - [(x0 + x1) / 2, (y0 + y1) / 2]).max(axis=1) < 8
            assert scores[near, class_id].max() > 0.5


def test_the_table_is_of_the_shipped_model():
    table = read_table(PATH)

    assert table.model is not None
    assert table.model.sha256 == hashlib.sha256(MODEL.read_bytes()).hexdigest()


def test_lint_finds_no_error():
    findings = lint_table(read_table(PATH), facts_of_model(inspect_model(MODEL)))

    assert [str(finding) for finding in findings if finding.severity is Severity.ERROR] == []


def test_it_was_searched_and_is_proven_with_labels():
    table = read_table(PATH)
    evidence = msgspec.to_builtins(table.evidence)

    assert table.method == "auto"
    assert set(table.float_reasons) == set(table.keep_float)
    assert set(evidence) == {"metric", "images", "float", "int8", "int8_mac_share", "uncertainty"}
    assert evidence["metric"] == "mAP50-95"
    assert evidence["images"] >= 64
    assert evidence["int8"] >= evidence["float"] - 0.005
    assert evidence["int8_mac_share"] >= 0.95


def test_it_is_written_as_the_format_says():
    assert table_text(read_table(PATH)) == PATH.read_text(encoding="utf-8")
