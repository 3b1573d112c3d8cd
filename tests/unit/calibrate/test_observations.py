"""What was seen of a model: which images are behind it, and that parts make the whole in any order.

On disk equal ones are equal files; damaged and older ones are refused in one sentence.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.observations import (
    Observations,
    largest_of_both,
    merge_observations,
    observations_bytes,
    read_observations,
)
from edge.calibrate.table import DatasetId
from edge.errors import CalibrationError
from tests.support.tables import count

NAMES = ("images", "/model.0/conv (1): 2")


def digest_of(picture):
    return hashlib.sha256(f"picture {picture}".encode()).hexdigest()


def observed(pictures, *, model="m", names=NAMES):
    """Return the observations of pictures, whose values follow from their number."""
    values = [np.random.default_rng(picture).normal(0, picture + 1, 50).astype(np.float32) for picture in pictures]
    seen = np.concatenate(values) if values else np.zeros(0, np.float32)
    return Observations(
        model_sha256=model,
        preprocess_sha256="p",
        image_sha256s=tuple(sorted(map(digest_of, pictures))),
        histograms={name: count(seen) for name in names},
    )


def disjoint(count_):
    """Return a strategy of `count_` sets of pictures that share none."""
    owner = st.integers(0, count_ - 1)
    return st.lists(owner, max_size=12).map(
        lambda owners: [[picture for picture, own in enumerate(owners) if own == part] for part in range(count_)]
    )


@given(disjoint(3))
def test_parts_make_the_whole_however_they_are_merged(parts):
    first, second, third = map(observed, parts)
    whole = observed([picture for part in parts for picture in part])

    assert merge_observations(merge_observations(first, second), third) == whole
    assert merge_observations(first, merge_observations(second, third)) == whole
    assert merge_observations(third, merge_observations(second, first)) == whole


def test_the_dataset_is_the_digest_of_the_sorted_digests_as_bytes():
    """SHA-256 of 32 bytes 0x00..0x1f, then of 32 bytes 0xff, worked out with coreutils."""
    low, high = bytes(range(32)).hex(), "ff" * 32
    seen = Observations(model_sha256="m", preprocess_sha256="p", image_sha256s=(low, high), histograms={})

    assert seen.images == 2
    assert seen.dataset == DatasetId(
        images=2, sha256="50473549565866d7efcc486bcf3072145a9616a6a6f3cdf8cc6158ff2178e5dd"
    )


def test_images_that_are_in_both_are_named_and_counted():
    first_shared = min(digest_of(2), digest_of(3))

    with pytest.raises(CalibrationError, match=f"2 of the images are in both .* counted twice, .* {first_shared}"):
        merge_observations(observed([1, 2, 3]), observed([2, 3, 4]))


def test_observations_of_another_model_do_not_merge():
    with pytest.raises(CalibrationError, match="model_sha256 m and other"):
        merge_observations(observed([0]), observed([1], model="other"))


def test_observations_of_other_tensors_do_not_merge():
    with pytest.raises(CalibrationError, match='"b" is in one'):
        merge_observations(observed([0], names=("a",)), observed([1], names=("a", "b")))


@pytest.mark.parametrize(
    ("digests", "message"),
    [
        (("ab" * 32, "ab" * 32), f"image {'ab' * 32} is given twice, it would be counted twice"),
        (("cd" * 32, "ab" * 32), f"digests of images in order, got {'ab' * 32} behind {'cd' * 32}"),
        (("AB" * 32,), "64 lower-case hex digits, got 'ABAB"),
        (("ab" * 31,), "64 lower-case hex digits, got 'abab"),
        (("ab" * 32 + "\n",), "64 lower-case hex digits, got 'abab"),
        (("gates/east.jpg",), "64 lower-case hex digits, got 'gates/east.jpg'"),
    ],
)
def test_what_are_no_sorted_digests_is_refused(digests, message):
    with pytest.raises(CalibrationError, match=message):
        Observations(model_sha256="m", preprocess_sha256="p", image_sha256s=digests, histograms={})


def test_the_larger_peak_of_both_counts_and_an_overflow_is_not_forgotten():
    assert largest_of_both({"a": 1.0, "b": 5.0, "c": math.nan}, {"a": 2.0, "b": 3.0, "c": 9.0}) == {
        "a": 2.0,
        "b": 5.0,
        "c": pytest.approx(math.nan, nan_ok=True),
    }


def test_observations_with_other_peaks_do_not_merge():
    one, other = (dataclasses.replace(observed([number]), peaks={name: 1.0}) for number, name in ((1, "a"), (2, "b")))

    with pytest.raises(CalibrationError, match='tensor "a" is in one of the observations only'):
        merge_observations(one, other)


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
