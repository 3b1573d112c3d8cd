"""The text of TensorRT's calibration cache, and dynamic ranges: names and headers as real files have them.

Values are held against `struct`, numpy and hand-worked numbers, not against our own scale.
"""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.cache import (
    CalibrationCache,
    Scale,
    cache_text,
    parse_cache,
    read_cache,
    version_from_number,
    version_to_number,
)
from edge.calibrate.convert import cache_from_table, dynamic_ranges, ranges_text, table_from_cache
from edge.calibrate.table import CalibrationTable, TensorRange, read_table, write_table
from edge.errors import CalibrationError
from tests.support.values import calibration_table

HEADER = "TRT-100300-EntropyCalibration2\n"
NAMES = [
    "images",
    "168",
    "/model.0/conv/Conv_output_0",
    "(Unnamed Layer* 56) [Constant]_output",
    "(Unnamed Layer* 78) [Matrix Multiply]_output",
    "/model.23/TopK_output (1)",
    "a/depthwise__6:0",
    "Conv__54:0",
    "a: b",
    "a: 3c010204",
    " lead and trail ",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_ends_at_the_last_colon_and_space(name):
    cache = parse_cache(f"{HEADER}{name}: 3c010204\n", "c")

    assert list(cache.scales) == [name]
    assert cache.scales[name].value == struct.unpack("<f", bytes.fromhex("0402013c"))[0]
    assert cache_text(cache) == f"{HEADER}{name}: 3c010204\n"


def test_one_over_127_is_what_nvidia_says_it_is():
    assert Scale.from_amax(1.0).hex == "3c010204"
    assert Scale("3c010204").amax == 1.0
    assert Scale("3c010a14").amax == pytest.approx(1.000244, abs=1e-6)
    assert Scale("00000000").amax == 0.0


@given(st.integers(0, 2**32 - 1).map(lambda bits: f"{bits:08x}"))
def test_every_scale_survives_cache_table_file_and_cache(tmp_path_factory, digits):
    path = tmp_path_factory.mktemp("t") / "t.calib.json"
    text = f"TRT-8401-MinMaxCalibration\nx: {digits}\n"
    write_table(path, table_from_cache(parse_cache(text, "c"), None))

    assert cache_text(cache_from_table(read_table(path))) == text


@given(st.floats(min_value=1e-30, max_value=1e30))
def test_a_scale_is_the_nearest_float32(amax):
    assert Scale.from_amax(amax).hex == struct.pack(">f", amax / 127).hex()


@pytest.mark.parametrize(
    ("version", "number"),
    [
        *(("7.0.0", 7000), ("7.1.3", 7103), ("8.4.1", 8401), ("8.5.2", 8502), ("8.6.1", 8601), ("9.3.0", 9300)),
        *(("10.0.1", 100001), ("10.3.0", 100300), ("10.7.0", 100700), ("10.16.2", 101602), ("11.4.1", 110401)),
    ],
)
def test_versions_as_tensorrt_numbers_them(version, number):
    assert version_to_number(version) == number
    assert version_from_number(number) == version


@pytest.mark.parametrize(("version", "number"), [("10.3", 100300), ("8.6.1.6", 8601)])
def test_shorter_and_longer_versions_are_understood(version, number):
    assert version_to_number(version) == number


@pytest.mark.parametrize("version", ["", "10", "8.10.0", "0.1.0", "100.0.0", "10.3.x", "v10.3.0", "10.100.0"])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(CalibrationError, match="no TensorRT version"):
        version_to_number(version)


@pytest.mark.parametrize(
    "header",
    ["", "images: 3c010204", "TRT-", "TRT-8601", "TRT-x-Entropy", "TRT-12345-A", "TRT-99-A", "\ufeffTRT-8601-A"],
)
def test_what_has_no_header_is_no_cache(header):
    with pytest.raises(CalibrationError, match=r"^c:1: expected a header such as TRT-100300-EntropyCalibration2, got"):
        parse_cache(f"{header}\nimages: 3c010204\n", "c")


@pytest.mark.parametrize(
    "line",
    [
        *("images", "images: ", "images: xyz", "images:3c010204", ": 3c010204", "a: 3c0102040", "a: -1"),
        *("a: 3fef", "a: 3", "a: 3c01020", "a: 00", "a: 1f"),
    ],
)
def test_a_damaged_line_is_named(line):
    with pytest.raises(CalibrationError, match=r"^c:3: expected NAME: and 8 hexadecimal digits or 0, got"):
        parse_cache(f"{HEADER}ok: 3c010204\n{line}\n", "c")


def test_a_tensor_that_is_given_twice_is_named_with_both_lines():
    with pytest.raises(CalibrationError, match=r'^c:4: tensor "a" is given twice, first in line 2'):
        parse_cache(f"{HEADER}a: 3c010204\nb: 3c010204\na: 3c010205\n", "c")


def test_a_header_alone_is_refused():
    with pytest.raises(CalibrationError, match="a header and no tensor"):
        parse_cache(HEADER, "c")


def test_windows_line_ends_upper_case_and_tensorrts_zero_are_read():
    cache = parse_cache("TRT-8600-EntropyCalibration2\r\na: 3C010204\r\nb: 0\r\n", "c")

    assert {name: scale.hex for name, scale in cache.scales.items()} == {"a": "3c010204", "b": "00000000"}
    assert cache.calibrator == "EntropyCalibration2"


@pytest.mark.parametrize("kept", [*range(len("b: 3fef468d\n")), -1, -2])
def test_a_cache_cut_within_its_last_line_is_refused(kept):
    whole, last = f"{HEADER}a: 3c010204\n", "b: 3fef468d\n"
    if kept == 0:
        assert list(parse_cache(whole, "c").scales) == ["a"]  # nothing in the file tells; lint knows by the model
        return
    with pytest.raises(CalibrationError, match=r"^c:3: expected a line end behind '.*', the file ends there; .*cut"):
        parse_cache(whole + last[:kept], "c")


def test_a_header_without_a_line_end_is_refused():
    with pytest.raises(CalibrationError, match=r"^c:1: expected a line end behind 'TRT-100300-EntropyCalibration2'"):
        parse_cache(HEADER.rstrip(), "c")


def test_binary_data_is_refused(tmp_path):
    (tmp_path / "c").write_bytes(HEADER.encode() + b"a: \xff\xfe\n")
    with pytest.raises(CalibrationError, match=r"c:2: expected a TensorRT calibration cache, byte 34 is no UTF-8"):
        read_cache(tmp_path / "c")


def test_a_name_that_cannot_stand_in_a_line_is_refused():
    with pytest.raises(CalibrationError, match="cannot be named"):
        cache_text(CalibrationCache(tensorrt="10.3.0", calibrator="A", scales={"a\nb": Scale("3c010204")}))


@pytest.mark.parametrize("version", ["11", "11.0.0", "11.4.1", "12.0", "110401"])
def test_no_cache_is_written_for_a_tensorrt_that_reads_none(version):
    cache = CalibrationCache(tensorrt=version, calibrator="EntropyCalibration2", scales={"a": Scale("3c010204")})

    with pytest.raises(CalibrationError, match=rf"^TensorRT {version} reads no calibration cache.*table qdq"):
        cache_text(cache)


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
