"""The assignment has the largest sum there is: held against SciPy's, and all ways where there are few."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from edge.track.assignment import assign

# Few different values, so that ties and equal sums are common.
WEIGHTS = arrays(
    np.float32,
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    elements=st.sampled_from([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0]),
)


def gain(weight, pairs, minimum):
    return sum(float(weight[row, column]) - minimum for row, column in pairs)


def largest_by_scipy(weight, minimum):
    """Going without is a pair with a column of one's own, of no gain."""
    rows, columns = weight.shape
    padded = np.zeros((rows, columns + rows))
    padded[:, :columns] = np.maximum(weight.astype(np.float64) - minimum, 0)
    return padded[linear_sum_assignment(padded, maximize=True)].sum()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_no_other_pairs_have_a_larger_sum(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert gain(weight, pairs, minimum) == pytest.approx(largest_by_scipy(weight, minimum))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_nobody_is_in_two_pairs_and_no_pair_is_too_weak(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(weight[pair] > minimum for pair in pairs)


def test_a_dense_crowd_is_assigned_exactly():
    weight = np.random.default_rng(0).random((60, 70)).astype(np.float32)

    assert gain(weight, assign(weight, minimum=0.1), 0.1) == pytest.approx(largest_by_scipy(weight, 0.1))


def test_all_ways_of_three_by_three():
    weight = np.array([[0.9, 0.8, 0.1], [0.8, 0.1, 0.2], [0.7, 0.6, 0.3]], np.float32)

    best = max(itertools.permutations(range(3)), key=lambda way: sum(weight[row, way[row]] for row in range(3)))

    assert sorted(assign(weight, minimum=0.0)) == list(enumerate(best))
