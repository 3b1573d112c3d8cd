"""Dynamic ranges: values against `struct`, numpy and hand-worked numbers, not against our own scale."""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.convert import dynamic_ranges, ranges_text
from edge.calibrate.table import CalibrationTable, TensorRange
from edge.errors import CalibrationError
from tests.support.values import calibration_table


def table_of(ranges, keep_float=()):
    return calibration_table(ranges, keep_float=keep_float)


GOLDEN = """{"format": "edge.ranges/1",
 "ranges": {
  "/a: b [é]": [-127.0, 127.0],
  "images": [-0.9999999962747097, 0.9999999962747097],
  "y": [-63.5, 63.5]
 },
 "keep_float": [
  "/dfl/Conv",
  "/z"
 ]}
"""


def test_the_file_is_as_the_format_says():
    """1 / 127 as float32 is 8454660 / 2**30 (3c010204), and 127 times that 0.99999999627...; 1 and 0.5 are exact."""
    made = ranges_text(table_of({"y": 63.5, "images": 1.0, "/a: b [é]": 127.0}, keep_float=("/z", "/dfl/Conv")))

    assert made == GOLDEN
    assert json.loads(made)["ranges"]["images"][1] == 127 * 8454660 / 2**30


def test_a_table_that_keeps_nothing_in_float_says_so():
    assert json.loads(ranges_text(table_of({"y": 127.0})))["keep_float"] == []


@given(st.floats(min_value=1e-35, max_value=3e38))
def test_ranges_are_symmetric_and_give_the_scale_back(amax):
    scale = struct.unpack("<f", struct.pack("<f", amax / 127))[0]

    low, high = dynamic_ranges(table_of({"x": amax}))["x"]

    assert low == -high
    assert high == 127 * scale
    assert np.float32(high / 127) == np.float32(scale)


@pytest.mark.parametrize("amax", [0.0, -1.0, math.inf, -math.inf, math.nan, 1e-50, 3.41e38])
def test_a_scale_that_cannot_be_used_is_refused_with_its_tensor(amax):
    with pytest.raises(CalibrationError, match='tensor "broken: 1": expected a finite range above 0, got scale'):
        ranges_text(table_of({"fine": 1.0, "broken: 1": amax}))


def test_a_nan_that_a_cache_held_is_refused():
    table = table_of({"fine": 1.0})
    tensors = {**table.tensors, "nan": TensorRange(amax=1.0, method="imported", scale_hex="ffc00001")}
    bad = CalibrationTable(
        **{**{field: getattr(table, field) for field in table.__struct_fields__}, "tensors": tensors}
    )

    with pytest.raises(CalibrationError, match='tensor "nan": expected a finite range above 0, got scale nan'):
        ranges_text(bad)
