"""The assignment has the largest sum there is: held against all ways where there are few, and a proof where many."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge.track.bytetrack import assign

# Few different values, so that ties and equal sums are common.
WEIGHTS = arrays(
    np.float32,
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    elements=st.sampled_from([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0]),
)


def gain(weight, pairs, minimum):
    return sum(float(weight[row, column]) - minimum for row, column in pairs)


def largest(weight, minimum):
    """The best of every way to give the rows of the longer side to those of the shorter, or to none of them."""
    gains = np.maximum(weight.astype(np.float64) - minimum, 0)
    few, many = sorted(gains.shape)
    gains = gains if gains.shape == (few, many) else gains.T
    best = {0: 0.0}  # by the columns that are taken
    for row in gains:
        found = dict(best)
        for taken, total in best.items():
            for column in range(many):
                if not taken & 1 << column:
                    now = taken | 1 << column
                    found[now] = max(found.get(now, 0.0), total + row[column])
        best = found
    return max(best.values())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_no_other_pairs_have_a_larger_sum(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert gain(weight, pairs, minimum) == pytest.approx(largest(weight, minimum))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_nobody_is_in_two_pairs_and_no_pair_is_too_weak(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(weight[pair] > minimum for pair in pairs)


def test_a_dense_crowd_is_assigned_exactly():
    """No exchange in a circle gains: by Bellman and Ford, such a circle is there unless the sum is the largest."""
    weight, minimum = np.random.default_rng(0).random((60, 70)).astype(np.float32), 0.1
    rows, columns = weight.shape
    gains = np.zeros((rows, columns + rows))  # going without is a pair with a column of one's own, of no gain
    gains[:, :columns] = weight.astype(np.float64) - minimum
    of_row = dict(assign(weight, minimum=minimum))
    place = np.array([of_row.get(row, columns + row) for row in range(rows)])
    # Row r takes the column of row s, and s another: what that gains. A free column is row `rows`, which gives it away.
    free = np.setdiff1d(np.arange(columns + rows), place)
    gained = np.zeros((rows + 1, rows + 1))
    gained[:rows, :rows] = gains[:, place] - gains[np.arange(rows), place][:, None]
    gained[:rows, rows] = gains[:, free].max(axis=1) - gains[np.arange(rows), place]
    most = np.zeros(rows + 1)
    for _ in range(rows + 1):
        most = np.maximum(most, (gained + most[None, :]).max(axis=1))
    assert np.allclose(most, np.maximum(most, (gained + most[None, :]).max(axis=1)), atol=1e-9)


def test_all_ways_of_three_by_three():
    weight = np.array([[0.9, 0.8, 0.1], [0.8, 0.1, 0.2], [0.7, 0.6, 0.3]], np.float32)

    best = max(itertools.permutations(range(3)), key=lambda way: sum(weight[row, way[row]] for row in range(3)))

    assert sorted(assign(weight, minimum=0.0)) == list(enumerate(best))
