"""The shipped calibration table: it belongs to the shipped model, and says how good INT8 is with it."""

import hashlib
from pathlib import Path

import msgspec

from edge.calibrate.lint.check import lint_table
from edge.calibrate.lint.facts import Severity, facts_of_model
from edge.calibrate.table import read_table, table_text
from edge.model.inspect import inspect_model

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "edge" / "demo" / "model" / "traffic.onnx"
PATH = ROOT / "calib_cache" / "traffic.calib.json"


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
