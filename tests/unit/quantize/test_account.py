"""Which accounts a model has, and what INT8 means in them."""

from pathlib import Path

import pytest

from edge.errors import CalibrationError
from edge.model.graph import load_graph
from edge.model.qdq.half import float16_model
from edge.quantize.account import accounts_of
from edge.types import Precision
from tests.support.models import yolov8

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "calib_cache/traffic.calib.json"


def test_a_float_model_has_three_and_int8_is_what_can_be(tmp_path):
    found = accounts_of(yolov8(tmp_path / "m.onnx"), table=None, batch=2)

    assert list(found.by_precision) == [Precision.FP32, Precision.FP16, Precision.INT8]
    assert {account.batch for account in found.by_precision.values()} == {2}
    assert found.by_precision[Precision.FP32].moved_bytes > found.by_precision[Precision.FP16].moved_bytes
    assert "if every layer that can be quantized were" in found.origin_of_int8


def test_the_batch_is_what_the_model_is_fixed_to(tmp_path):
    for batch, expected in ((4, 4), (None, 1)):
        found = accounts_of(yolov8(tmp_path / "m.onnx", batch=batch), table=None, batch=None)
        assert {account.batch for account in found.by_precision.values()} == {expected}


def test_a_model_in_half_precision_has_none_in_int8_and_says_why(tmp_path):
    half = tmp_path / "half.onnx"
    half.write_bytes(float16_model(load_graph(yolov8(tmp_path / "m.onnx")), "m"))
    found = accounts_of(half, table=None, batch=None)

    assert list(found.by_precision) == [Precision.FP32, Precision.FP16]
    assert "expected a float32 model, this one computes in float16" in found.why_no_int8


def test_a_table_of_another_model_is_refused(tmp_path):
    with pytest.raises(CalibrationError, match=r"traffic\.calib\.json"):
        accounts_of(yolov8(tmp_path / "m.onnx"), table=TABLE, batch=None)
