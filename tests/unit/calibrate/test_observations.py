"""What was seen of a model: which images are behind it, and that parts make the whole in any order."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.observations import Observations, largest_of_both, merge_observations
from edge.calibrate.table import DatasetId
from edge.errors import CalibrationError
from tests.support.tables import count

NAMES = ("images", "/model.0/conv (1): 2")


def digest_of(picture):
    return hashlib.sha256(f"picture {picture}".encode()).hexdigest()


def observed(pictures):
    """Return the observations of pictures, whose values follow from their number."""
    values = [np.random.default_rng(picture).normal(0, picture + 1, 50).astype(np.float32) for picture in pictures]
    seen = np.concatenate(values) if values else np.zeros(0, np.float32)
    return Observations(
        image_sha256s=tuple(sorted(map(digest_of, pictures))),
        histograms={name: count(seen) for name in NAMES},
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
    seen = Observations(image_sha256s=(low, high), histograms={})

    assert seen.images == 2
    assert seen.dataset == DatasetId(
        images=2, sha256="50473549565866d7efcc486bcf3072145a9616a6a6f3cdf8cc6158ff2178e5dd"
    )


def test_images_that_are_in_both_are_named_and_counted():
    first_shared = min(digest_of(2), digest_of(3))

    with pytest.raises(CalibrationError, match=f"2 of the images are in both .* counted twice, .* {first_shared}"):
        merge_observations(observed([1, 2, 3]), observed([2, 3, 4]))


def test_the_larger_peak_of_both_counts_and_an_overflow_is_not_forgotten():
    assert largest_of_both({"a": 1.0, "b": 5.0, "c": math.nan}, {"a": 2.0, "b": 3.0, "c": 9.0}) == {
        "a": 2.0,
        "b": 5.0,
        "c": pytest.approx(math.nan, nan_ok=True),
    }
