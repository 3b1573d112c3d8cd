"""Observations on disk: equal ones are equal files, damaged and older ones are refused in one sentence."""

import contextlib
import dataclasses
import io
import json
import math
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.observations import Observations, merge_observations, observations_bytes, read_observations
from edge.errors import CalibrationError
from tests.unit.calibrate.test_observations import digest_of, observed


def test_what_was_saved_is_read_again(tmp_path):
    (tmp_path / "a.npz").write_bytes(observations_bytes(observed([1, 2, 3])))

    assert read_observations(tmp_path / "a.npz") == observed([3, 1, 2])


def test_nothing_seen_is_read_again(tmp_path):
    nothing = Observations(model_sha256="m", preprocess_sha256="p", image_sha256s=(), histograms={})
    (tmp_path / "a.npz").write_bytes(observations_bytes(nothing))

    assert read_observations(tmp_path / "a.npz") == nothing


def test_saved_parts_merge_to_the_whole_byte_for_byte(tmp_path):
    first, second, third = observed([0, 5]), observed([1]), observed([4, 3])
    (tmp_path / "first.npz").write_bytes(observations_bytes(first))
    (tmp_path / "rest.npz").write_bytes(observations_bytes(merge_observations(second, third)))
    merged = merge_observations(read_observations(tmp_path / "rest.npz"), read_observations(tmp_path / "first.npz"))
    (tmp_path / "merged.npz").write_bytes(observations_bytes(merged))
    (tmp_path / "whole.npz").write_bytes(observations_bytes(observed([0, 1, 3, 4, 5])))

    assert merged.images == 5
    assert (tmp_path / "merged.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_no_entry_carries_the_time_it_was_written_at(tmp_path):
    (tmp_path / "a.npz").write_bytes(observations_bytes(observed([1])))

    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_order_in_which_tensors_were_observed_does_not_show(tmp_path):
    (tmp_path / "a.npz").write_bytes(observations_bytes(observed([1], names=("a", "b"))))
    (tmp_path / "b.npz").write_bytes(observations_bytes(observed([1], names=("b", "a"))))

    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def rewritten(path, **changes):
    """Write `path` again with other arrays; None leaves one out."""
    with np.load(path) as stored:
        arrays = {**stored, **changes}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})


def head(**changes):
    content = {"format": "edge.hist/2", "model_sha256": "m", "preprocess_sha256": "p", "names": ["a", "b"]}
    content |= {"peak_names": [], **changes}
    return np.frombuffer(json.dumps(content).encode(), np.uint8)


def digests(*pictures):
    return np.array([list(bytes.fromhex(digest_of(picture))) for picture in pictures], np.uint8)


LOW, HIGH = sorted((1, 2), key=digest_of)
LYING = [
    ({"amax": np.array([1e3, 1e3])}, "a range of .* do not fit amax"),
    ({"amax": np.array([1.0, 2.0], np.float32)}, "amax should be float64 with 2 rows, it is float32"),
    ({"zeros": np.zeros((2, 1), np.int64)}, r"zeros should be int64 with 2 rows, it is int64 \(2, 1\)"),
    ({"counts": np.zeros((1, 2048), np.int64)}, r"counts should be int64 with 2 rows, it is int64 \(1, 2048\)"),
    ({"counts": np.zeros(2, np.int64)}, r"counts should be int64 with 2 rows, it is int64 \(2,\)"),
    ({"exponent": None}, "exponent"),
    ({"image_sha256s": None}, "image_sha256s"),
    ({"image_sha256s": np.zeros((1, 31), np.uint8)}, r"uint8 \(images, 32\), it is uint8 \(1, 31\)"),
    ({"image_sha256s": np.zeros(32, np.uint8)}, r"uint8 \(images, 32\), it is uint8 \(32,\)"),
    ({"image_sha256s": np.zeros((1, 32), np.int64)}, r"uint8 \(images, 32\), it is int64 \(1, 32\)"),
    ({"image_sha256s": digests(1, 1)}, f"image {digest_of(1)} is given twice, it would be counted twice"),
    ({"image_sha256s": digests(HIGH, LOW)}, "expected the digests of images in order"),
    ({"head": head(names=["a", "a"])}, "a tensor is named twice"),
    ({"head": head(names=["a", 7])}, "Expected `str`, got `int`"),
    ({"head": head(names=["a"])}, "should be int64 with 1 rows"),
    ({"head": head(peak_names=["a", "a"])}, "a tensor is named twice"),
    ({"head": head(peak_names=["c"])}, "peaks should be float64 with 1 rows"),
    ({"head": head(images=3)}, "unknown field `images`"),
    ({"head": np.frombuffer(b"[[[", np.uint8)}, "Expected `object`"),
    ({"head": None}, "head"),
]


@pytest.mark.parametrize(("changes", "message"), LYING)
def test_a_file_that_contradicts_itself_is_refused_with_the_reason(tmp_path, changes, message):
    path = tmp_path / "a.npz"
    path.write_bytes(observations_bytes(observed([1, 2], names=("a", "b"))))
    rewritten(path, **changes)

    with pytest.raises(
        CalibrationError, match=rf"a\.npz: expected histograms \(edge\.hist/2\), cannot be read: .*{message}"
    ):
        read_observations(path)


def one_array():
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04", b"\x80\x04K\x01.", b"\x93NUMPY", one_array()])
def test_what_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "a.npz").write_bytes(data)

    with pytest.raises(CalibrationError, match=r"a\.npz: expected histograms \(edge\.hist/2\)"):
        read_observations(tmp_path / "a.npz")


def test_a_damaged_array_is_named(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(observations_bytes(observed([1], names=("a",))))
    rewritten(path)  # without compression
    path.write_bytes(path.read_bytes().replace(b"'descr': '<f8'", b"'descr': '<f8(", 1))

    with pytest.raises(CalibrationError, match=r"cannot be read: amax\.npy is damaged; observe the images again"):
        read_observations(path)


def test_a_file_of_version_1_says_what_to_do(tmp_path):
    old = {"format": "edge.hist/1", "model_sha256": "m", "preprocess_sha256": "p", "images": 3, "names": []}
    np.savez(tmp_path / "a.npz", head=np.frombuffer(json.dumps(old).encode(), np.uint8))

    with pytest.raises(CalibrationError, match=r"this is 'edge\.hist/1'; observe the images again"):
        read_observations(tmp_path / "a.npz")


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(observations_bytes(observed([1], names=("a",))))
    data = path.read_bytes()

    for length in range(0, len(data), max(1, len(data) // 50)):
        path.write_bytes(data[:length])
        with pytest.raises(CalibrationError, match="expected histograms"):
            read_observations(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "a.npz"
    path.write_bytes(observations_bytes(observed([1, 2])))
    return path, path.read_bytes()


@given(st.data())
def test_a_file_that_was_changed_anywhere_is_read_or_refused(saved, data):
    path, whole = saved
    raw = bytearray(whole)
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(raw)

    with contextlib.suppress(CalibrationError):
        read_observations(path)


def test_peaks_are_kept_even_those_of_a_model_that_overflowed(tmp_path):
    seen = dataclasses.replace(observed([1]), peaks={"b": math.inf, "a": 0.1})
    (tmp_path / "a.npz").write_bytes(observations_bytes(seen))

    assert dict(read_observations(tmp_path / "a.npz").peaks) == {"a": 0.1, "b": math.inf}
