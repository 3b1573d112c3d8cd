"""Each method against a slow implementation of its definition, or against the data itself."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.calibrate.histogram import divergences, entropy, minmax, mse, percentile, squared_errors
from tests.support.tables import count

SHAPES = {
    "normal": lambda r: r.normal(0, 1, 20000),
    "relu": lambda r: np.maximum(r.normal(0, 1, 20000), 0),
    "long tail": lambda r: r.standard_t(2, 20000),
    "sigmoid": lambda r: 1 / (1 + np.exp(-r.normal(-6, 3, 20000))),
    "outlier": lambda r: np.append(r.normal(0, 1, 20000), [55.0, 90.0]),
    "few": lambda r: r.normal(0, 1, 40),
    "uniform": lambda r: r.uniform(-3, 3, 20000),
}


def data(shape, seed=0):
    return SHAPES[shape](np.random.default_rng(seed)).astype(np.float32)


shapes = pytest.mark.parametrize("shape", SHAPES)


@shapes
def test_minmax_is_the_largest_value(shape):
    assert minmax(count(data(shape))) == max(abs(float(value)) for value in data(shape))


@shapes
@pytest.mark.parametrize("percent", [50, 99, 99.9, 99.99, 100])
def test_percentile_is_that_of_the_sorted_values_to_one_bin(shape, percent):
    values = np.sort(np.abs(data(shape)))
    exact = float(values[math.ceil(round(percent * len(values) / 100, 6)) - 1])
    histogram = count(values)

    assert exact <= percentile(histogram, percent) <= exact + histogram.bin_width


def test_percentile_of_almost_only_zeros_keeps_a_bin():
    histogram = count(np.append(np.zeros(10**6), [1.0, 2.0]).astype(np.float32))

    assert percentile(histogram, 99) == histogram.bin_width == 4 / 2048


@pytest.mark.parametrize("percent", [0, -1, 100.1, math.nan])
def test_percentile_refuses_what_is_none(percent):
    with pytest.raises(ValueError, match="percentile"):
        percentile(count(np.ones(1)), percent)


def error_of(values, amax):
    """What int8 makes of the values themselves."""
    scale = amax / 127
    back = np.clip(np.rint(values.astype(np.float64) / scale), -127, 127) * scale
    return float(((values - back) ** 2).sum())


@shapes
def test_mse_is_as_good_as_the_best_that_the_data_itself_has(shape):
    values = data(shape)
    amax = float(np.abs(values).max())
    best = min(error_of(values, candidate) for candidate in np.linspace(amax / 40, amax, 1500))

    assert error_of(values, mse(count(values))) <= 1.01 * best + 1e-12


def slow_squared_error(counts, amax):
    """By the definition: cut each bin where the level changes, and integrate (x - level)^2 over each piece."""
    scale, total = amax / 127, 0.0
    steps = [(j - 0.5) * scale for j in range(1, 128)]
    for k, n in enumerate(counts):
        cuts = [k, *(step for step in steps if k < step < k + 1), k + 1]
        for low, high in itertools.pairwise(cuts):
            level = min(round((low + high) / 2 / scale), 127) * scale
            total += n * ((high - level) ** 3 - (low - level) ** 3) / 3
    return total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.floats(1, 400))
def test_squared_error_equals_its_definition(counts, amax):
    expected = slow_squared_error(counts, amax)

    assert squared_errors(np.array(counts), np.array([amax]))[0] == pytest.approx(expected, rel=1e-6, abs=1e-3)


def slow_divergence(counts, kept):
    """NVIDIA's definition, bin by bin: kept bins, 128 levels, what is clipped counts into the last kept bin."""
    bins = [counts[1], *counts[1:]]
    reference = bins[:kept]
    reference[-1] += sum(bins[kept:])
    members = {}
    for k in range(kept):
        if bins[k]:
            level = max(j for j in range(128) if j * kept <= 128 * k)
            members.setdefault(level, []).append(k)
    quantized = [0.0] * kept
    for of_level in members.values():
        for k in of_level:
            quantized[k] = sum(bins[m] for m in of_level) / len(of_level)
    divergence = 0.0
    for p, q in zip(reference, quantized, strict=True):
        if p and not q:
            return math.inf
        if p:
            p, q = p / sum(reference), q / sum(quantized)
            divergence += p * math.log(p / q)
    return divergence


@shapes
def test_divergences_equal_their_definition(shape):
    histogram = count(data(shape), bins=256)
    counts = histogram.counts[: histogram.occupied]
    found = divergences(counts)

    expected = [slow_divergence(counts.tolist(), kept) for kept in range(128, len(counts) + 1)]
    assert found == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 1000]), min_size=127, max_size=200), st.integers(1, 50))
def test_divergences_of_sparse_counts_equal_their_definition(counts, last):
    counts = [*counts, last]

    expected = [slow_divergence(counts, kept) for kept in range(128, len(counts) + 1)]
    assert divergences(np.array(counts)) == pytest.approx(expected, abs=1e-9)


def test_divergences_at_full_size_equal_their_definition():
    counts = count(data("long tail")).counts
    found = divergences(counts)

    for kept in (128, 129, 500, 1111, 2047, 2048):
        assert found[kept - 128] == pytest.approx(slow_divergence(counts.tolist(), kept), abs=1e-9)


def test_an_empty_last_bin_with_clipped_values_is_infinite_and_never_chosen():
    counts = count(data("outlier")).counts
    found = divergences(counts[: count(data("outlier")).occupied])

    assert np.isinf(found).sum() > 500
    assert np.isfinite(found[-1])
    assert not np.isnan(found).any()
    assert 0 < entropy(count(data("outlier"))) <= 90


def test_nothing_is_clipped_where_int8_loses_nothing():
    values = np.repeat(np.arange(1, 257, dtype=np.float32), 3) - 0.5  # every bin the same: its mean is itself
    histogram = count(values, bins=256)

    assert divergences(histogram.counts)[-1] == pytest.approx(0, abs=1e-12)
    assert entropy(histogram) == 255.5


def test_entropy_clips_a_long_tail():
    histogram = count(data("long tail"))

    assert entropy(histogram) < histogram.amax / 4


@pytest.mark.parametrize("method", [minmax, percentile, mse, entropy])
def test_no_range_is_above_the_maximum_nor_zero(method):
    for shape in SHAPES:
        histogram = count(data(shape))
        assert 0 < method(histogram) <= histogram.amax


@pytest.mark.parametrize("method", [minmax, percentile, mse, entropy])
@pytest.mark.parametrize("value", [1.0, 5e-39, 2.0**-120, 3.4e38])
def test_one_value_is_its_own_range(method, value):
    values = np.array([value], np.float32)

    assert method(count(values)) == float(values[0])


@pytest.mark.parametrize("method", [minmax, percentile, mse, entropy])
def test_only_zeros_have_no_range(method):
    assert method(count(np.zeros(5, np.float32))) == 0.0
