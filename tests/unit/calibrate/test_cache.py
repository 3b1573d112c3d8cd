"""The text of TensorRT's calibration cache: names and headers as real files have them, values against `struct`."""

import struct

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
from edge.calibrate.convert import cache_from_table, table_from_cache
from edge.calibrate.table import read_table, write_table
from edge.errors import CalibrationError

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
