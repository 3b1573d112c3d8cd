import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.histogram import BINS, Histogram, Observer, RangeTally, merge, merge_all
from edge.errors import CalibrationError
from edge.types import MagnitudeCounts
from tests.support.tables import count

floats = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0**-149, 2.0**-100, 2.0**-101, 3.4e38, 127.99999]),
)
arrays = st.lists(floats, max_size=40).map(lambda values: np.array(values, np.float32))


def slow_count(values):
    """By the definition, one value at a time, in exact arithmetic."""
    magnitudes = [abs(float(value)) for value in values]
    amax = max(magnitudes, default=0.0)
    exponent = -100
    while amax >= 2.0**exponent:
        exponent += 1
    counts = [0] * BINS
    for magnitude in magnitudes:
        if magnitude:
            counts[math.floor(magnitude / (2.0**exponent / BINS))] += 1
    return Histogram(exponent=exponent, counts=np.array(counts), zeros=magnitudes.count(0.0), amax=amax)


@given(arrays)
def test_counts_equal_the_definition(values):
    assert count(values) == slow_count(values)


@given(st.lists(arrays, max_size=6))
def test_a_tally_equals_counting_each_part_and_merging(parts):
    tally, merged = RangeTally(), count(np.zeros(0, np.float32))
    for part in parts:
        tally.add(part)
        merged = merge(merged, count(part))

        assert tally.histogram() == merged == slow_count(np.concatenate(parts)[: merged.total])


@pytest.mark.parametrize("order", [(1e-30, 1e30), (1e30, 1e-30), (0.0, 3.4e38), (2.0**-149, 1.0, 3.4e38)])
def test_a_tally_of_tiny_and_huge_values_loses_none(order):
    tally, one_by_one = RangeTally(), [np.full(3, value, np.float32) for value in order]
    for part in one_by_one:
        tally.add(part)

    found = tally.histogram()

    assert found == count(np.concatenate(one_by_one)) == slow_count(np.concatenate(one_by_one))
    assert (found.total, found.amax) == (3 * len(order), float(np.float32(max(order))))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [70_000, 199_999], ids=["second-chunk", "last-value"])
def test_a_tally_is_as_it_was_after_a_value_that_is_not_finite_far_inside(wrong, place):
    tally = RangeTally()
    tally.add(np.array([0.0, 0.5, 3.0], np.float32))
    before = tally.histogram()
    values = np.full(200_000, 1000.0, np.float32)
    values[place] = wrong

    with pytest.raises(CalibrationError, match="1 of 200000 are NaN or infinite"):
        tally.add(values)

    assert tally.histogram() == before
    tally.add(np.array([5.0], np.float32))
    assert tally.histogram() == count(np.array([0.0, 0.5, 3.0, 5.0], np.float32))


def test_a_histogram_that_was_given_out_does_not_change():
    tally = RangeTally()
    tally.add(np.ones(3, np.float32))
    first = tally.histogram()

    tally.add(np.full(9, 1.5, np.float32))

    assert first == count(np.ones(3, np.float32))


@given(arrays, arrays, arrays)
def test_merging_is_associative_and_commutative(a, b, c):
    one, two, three = count(a), count(b), count(c)

    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, two) == merge(two, one)
    assert merge(one, two).total == len(a) + len(b)


def test_an_array_of_many_chunks_equals_its_rows_one_by_one():
    values = np.random.default_rng(0).normal(0, 3, (5, 3, 200, 100)).astype(np.float32)
    whole, rows = Observer(), Observer()
    whole.observe("x", values)
    for row in values:
        rows.observe("x", row[:, ::-1].transpose(2, 0, 1))  # neither contiguous nor in order

    assert whole.histograms["x"] == rows.histograms["x"]
    expected, _ = np.histogram(np.abs(values).astype(np.float64), bins=BINS, range=(0, 2.0**4))
    assert whole.histograms["x"].exponent == 4
    assert np.array_equal(whole.histograms["x"].counts, expected)


def test_float16_and_float64_are_taken():
    assert count(np.array([1, -2], np.float16)) == count(np.array([1.0, -2.0]))
    with pytest.raises(CalibrationError):
        count(np.array([1e300]))


def test_other_numbers_of_bins_do_not_merge():
    with pytest.raises(ValueError, match="2048 and 256 bins"):
        merge(count(np.ones(1)), count(np.ones(1), bins=256))


def test_names_of_one_side_only_are_taken_as_they_are():
    one, two = count(np.ones(1)), count(np.zeros(2))

    assert merge_all({"a": one}, {"b": two, "a": two}) == {"a": merge(one, two), "b": two}


def test_memory_does_not_grow_with_the_number_of_batches():
    values = np.random.default_rng(0).normal(0, 1, 300_000).astype(np.float32)
    observer = Observer()
    observer.observe("x", values)
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(2):
            for _ in range(10):
                observer.observe("x", values)
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()

    assert max(peaks) < 2 * values.nbytes
    assert peaks[1] - peaks[0] < 20_000


def as_a_device_counts(values, not_finite=0):
    found = slow_count(values)
    return MagnitudeCounts(counts=found.counts, zeros=found.zeros, not_finite=not_finite, amax=found.amax)


@given(st.lists(st.tuples(arrays, st.booleans()), max_size=6))
def test_counts_of_a_device_join_as_if_they_were_counted_here(parts):
    observer, whole = Observer(), np.concatenate([np.zeros(0, np.float32), *(values for values, _ in parts)])
    for values, is_counted_there in parts:
        observer.observe("x", as_a_device_counts(values) if is_counted_there else values)

    assert observer.histograms.get("x", count(np.zeros(0, np.float32))) == slow_count(whole)


def test_values_that_are_not_finite_are_refused_in_the_same_words_wherever_they_were_counted():
    told = []
    for seen in (np.array([1, np.nan, 0, np.inf], np.float32), as_a_device_counts(np.array([1.0, 0.0]), not_finite=2)):
        observer = Observer()
        observer.observe("x", np.ones(3, np.float32))
        with pytest.raises(CalibrationError) as refused:
            observer.observe("x", seen)
        assert observer.histograms["x"].total == 3
        told.append((refused.value.problem, refused.value.hint))

    assert told[0] == told[1]
    assert told[0][0] == 'tensor "x": expected finite values, 2 of 4 are NaN or infinite'
