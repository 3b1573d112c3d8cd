"""Zones and lines, held against exact arithmetic in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edge.config.pipeline import polygon_problem
from edge.track.geometry import Lines, Zones, anchors

# A loaded machine is slow, we are not.
property_test = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# On a grid of powers of two products of differences are exact in floats, and points on borders and corners are common.
GRID = st.integers(0, 64).map(lambda number: number / 64)
POINT = st.tuples(GRID, GRID)
PATH = st.lists(POINT, min_size=2, max_size=12)


def cross(o, a, b):
    o, a, b = ([Fraction(value) for value in point] for point in (o, a, b))
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def winding(polygon, point):
    """How often the border goes around the point; None on the border. By angles of exact turns."""
    turns = 0
    for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        side = cross(a, b, point)
        in_box = all(min(a[k], b[k]) <= point[k] <= max(a[k], b[k]) for k in (0, 1))
        if side == 0 and in_box:
            return None
        if a[1] <= point[1] < b[1] and side > 0:
            turns += 1
        elif b[1] <= point[1] < a[1] and side < 0:
            turns -= 1
    return turns


def is_inside(polygon, point):
    return bool(Zones([polygon]).inside(np.array([point]))[0, 0])


@property_test
@given(st.lists(POINT, min_size=3, max_size=7, unique=True), POINT)
def test_inside_is_what_the_border_goes_around(polygon, point):
    assume(polygon_problem(polygon) is None)
    expected = winding(polygon, point)
    assume(expected is not None)

    assert is_inside(polygon, point) == (expected != 0)


@property_test
@given(st.lists(POINT, min_size=3, max_size=7, unique=True), POINT)
def test_direction_and_first_corner_of_a_polygon_do_not_matter(polygon, point):
    turned = polygon[2:] + polygon[:2]

    assert is_inside(polygon, point) == is_inside(turned, point) == is_inside(polygon[::-1], point)


@property_test
@given(GRID, GRID, POINT)
def test_zones_that_share_a_border_share_no_point_and_leave_none_out(x, y, point):
    assume(0 < x < 1 and 0 < y < 1 and point[0] < 1 and point[1] < 1)
    quarters = [[(a, c), (b, c), (b, d), (a, d)] for a, b in ((0.0, x), (x, 1.0)) for c, d in ((0.0, y), (y, 1.0))]

    assert Zones(quarters).inside(np.array([point])).sum() == 1


def test_zones_of_different_length_are_looked_at_together():
    square = [(0.1, 0.1), (0.5, 0.1), (0.5, 0.5), (0.1, 0.5)]
    triangle = [(0.4, 0.4), (0.9, 0.4), (0.9, 0.9)]
    notched = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.2), (0.0, 1.0)]
    points = np.array([[0.2, 0.2], [0.45, 0.42], [0.8, 0.6], [0.5, 0.6]])

    found = Zones([square, triangle, notched]).inside(points)

    assert found.tolist() == [[True, False, True], [True, True, False], [False, True, True], [False, False, False]]


def test_nobody_is_inside_of_no_zone():
    assert Zones([]).inside(np.zeros((3, 2))).shape == (3, 0)
    assert Lines([]).crossed(np.zeros((3, 2)), np.ones((3, 2))).shape == (3, 0)


def crossings(line, path):
    points = np.array(path)
    return Lines([line]).crossed(points[:-1], points[1:])[:, 0]


def test_forward_is_from_left_to_right_for_who_goes_along_the_line():
    line = ((0.0, 0.5), (1.0, 0.5))  # to the right; on pictures y grows downwards, so its right hand is below

    assert crossings(line, [(0.3, 0.2), (0.4, 0.8), (0.5, 0.1)]).tolist() == [1, -1]


@property_test
@given(POINT, POINT, POINT, POINT)
def test_a_way_crosses_a_line_where_both_separate_each_other(start, end, before, after):
    assume(start != end)
    sides = [cross(start, end, point) for point in (before, after)]
    ends = [cross(before, after, point) for point in (start, end)]
    assume(0 not in sides and 0 not in ends)
    separates = sides[0] * sides[1] < 0 and ends[0] * ends[1] < 0

    assert crossings((start, end), [before, after]).tolist() == [(1 if sides[1] > 0 else -1) if separates else 0]


@property_test
@given(POINT, POINT, POINT, POINT)
def test_there_and_back_is_one_crossing_each_way(start, end, before, after):
    assume(start != end)

    assert crossings((start, end), [before, after, before]).sum() == 0


@property_test
@given(GRID, st.lists(POINT, min_size=2, max_size=20))
def test_over_a_line_through_the_whole_picture_only_the_ends_of_a_way_count(y, path):
    line = ((-1.0, y), (2.0, y))
    is_below = [point[1] >= y for point in path]

    assert crossings(line, path).sum() == is_below[-1] - is_below[0]


def test_anchors_are_shares_of_the_frame():
    xyxy = np.array([[100, 50, 200, 150]], np.float32)

    assert anchors(xyxy, "bottom", width=1000, height=500).tolist() == [[pytest.approx(0.15), pytest.approx(0.3)]]
    assert anchors(xyxy, "centre", width=1000, height=500).tolist() == [[pytest.approx(0.15), pytest.approx(0.2)]]


def test_who_is_cut_off_by_the_frame_is_in_a_zone_that_reaches_to_its_edge():
    cut = np.array([[900, 300, 1100, 500]], np.float32)  # beyond the right edge, down to the lower one
    to_the_edge = [(0.5, 0.5), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0)]

    assert Zones([to_the_edge]).inside(anchors(cut, "bottom", width=1000, height=500)).all()


@pytest.mark.parametrize(
    ("polygon", "problem"),
    [
        ([(0, 0), (1, 0), (1, 1)], None),
        ([(0, 0), (1, 0), (1, 1), (0.5, 0.2), (0, 1)], None),
        ([(0, 0), (1, 1), (1, 0), (0, 1)], "crosses itself"),
        ([(0, 0), (1, 0), (1, 1), (0, 0)], "given twice"),
        ([(0, 0), (0.5, 0.5), (1, 1)], "no area"),
        ([(0, 0), (1, 0), (1, 1), (0.5, 0)], "crosses itself"),
    ],
)
def test_a_polygon_that_is_no_zone_is_told(polygon, problem):
    found = polygon_problem(polygon)

    assert found is None if problem is None else problem in found
