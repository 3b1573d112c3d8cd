"""Parity of candidates, against boxes and sums that are worked out by hand."""

import numpy as np
import pytest

from edge.evaluate.layers import best_candidates, compare_candidates, error_of_best
from edge.types import HeadFamily
from edge.vision.heads import Candidates

BOX = (10.0, 10.0, 30.0, 30.0)
V8, V10 = HeadFamily.YOLOV8, HeadFamily.YOLOV10


def candidates(*lines):
    """Each line is (cell, class, score, box) or (cell, class, score, box, row)."""
    rows = [(*line, 0)[:5] for line in lines]
    cell, class_id, score, boxes, row = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return Candidates(
        row=np.array(row, np.int64),
        cell=np.array(cell, np.int64),
        xyxy=np.array(boxes, np.float32).reshape(-1, 4),
        score=np.array(score, np.float32),
        class_id=np.array(class_id, np.int32),
    )


def own_error(parity):
    return parity.error_for(parity.weight)


def error(reference, found, family=V8):
    return own_error(compare_candidates(candidates(*reference), candidates(*found), family))


SEEN = ((3, 0, 0.5, BOX), (7, 2, 0.25, (0.0, 0.0, 8.0, 4.0)), (7, 1, 0.75, BOX, 1))


@pytest.mark.parametrize("family", [V8, V10])
def test_equal_candidates_have_no_error(family):
    assert error(SEEN, SEEN, family) == 0


@pytest.mark.parametrize("family", [V8, V10])
def test_finding_nothing_is_an_error_of_one(family):
    parity = compare_candidates(candidates(*SEEN), candidates(), family)

    assert own_error(parity) == 1
    assert (parity.weight, parity.box_error) == (0.5**2 + 0.25**2 + 0.75**2, 0)


@pytest.mark.parametrize("family", [V8, V10])
def test_nothing_to_find_and_nothing_found_is_no_error(family):
    assert compare_candidates(candidates(), candidates(), family).error_for(1.0) == 0


@pytest.mark.parametrize("family", [V8, V10])
def test_a_shifted_box_costs_what_it_no_longer_covers_twice(family):
    shifted = (15.0, 10.0, 35.0, 30.0)  # 15 x 20 of 25 x 20 pixels: IoU 0.6

    parity = compare_candidates(candidates((3, 0, 0.5, BOX)), candidates((3, 0, 0.5, shifted)), family)

    assert parity.score_error == 0
    assert parity.box_error == pytest.approx(0.25 * 0.4)
    assert own_error(parity) == pytest.approx(2 * 0.4)


@pytest.mark.parametrize(("reference", "found"), [(0.75, 0.5), (0.5, 0.75)])
def test_a_score_difference_counts_by_the_larger_of_the_two(reference, found):
    assert error([(3, 0, reference, BOX)], [(3, 0, found, BOX)]) == pytest.approx(0.75 * 0.25 / reference**2)


@pytest.mark.parametrize("family", [V8, V10])
def test_a_candidate_that_the_reference_does_not_have_counts_by_the_square_of_its_score(family):
    far = (60.0, 60.0, 70.0, 70.0)

    assert error([(3, 0, 0.5, BOX)], [(3, 0, 0.5, BOX), (9, 0, 0.25, far)], family) == pytest.approx(0.0625 / 0.25)


@pytest.mark.parametrize("family", [V8, V10])
@pytest.mark.parametrize("other", [(3, 1, 0.5, BOX), (3, 0, 0.5, BOX, 1)], ids=["class", "frame"])
def test_another_class_or_frame_is_no_partner(family, other):
    assert error([(3, 0, 0.5, BOX)], [other], family) == pytest.approx(2)  # one lost, one made up


def test_another_cell_is_no_partner_where_cells_have_a_meaning():
    assert error([(3, 0, 0.5, BOX)], [(4, 0, 0.5, BOX)]) == pytest.approx(2)


def test_end_to_end_lines_may_swap():
    swapped = [(2, 1, 0.75, BOX, 1), (0, 2, 0.25, (0.0, 0.0, 8.0, 4.0)), (1, 0, 0.5, BOX)]

    assert error(SEEN, swapped, V10) == 0


def test_end_to_end_boxes_that_hardly_overlap_are_two_objects():
    beside = (20.0, 10.0, 40.0, 30.0)  # IoU 1/3

    assert error([(0, 0, 0.5, BOX)], [(0, 0, 0.5, beside)], V10) == pytest.approx(2)


def test_end_to_end_partners_are_taken_once_and_the_surest_chooses_first():
    near = (12.0, 10.0, 32.0, 30.0)  # IoU 18/22 with BOX
    reference = [(0, 0, 0.25, near), (1, 0, 0.75, BOX)]

    parity = compare_candidates(candidates(*reference), candidates((0, 0, 0.75, BOX)), V10)

    assert parity.score_error == pytest.approx(0.25**2)
    assert parity.box_error == 0


@pytest.mark.parametrize("family", [V8, V10])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38])
def test_boxes_that_are_no_numbers_count_as_lost_and_make_no_nan(family, wrong):
    found = [(3, 0, 0.5, (wrong,) * 4), (5, 0, 0.5, (0.0, wrong, 1.0, 1.0))]

    parity = compare_candidates(candidates((3, 0, 0.5, BOX), (5, 0, 0.5, BOX)), candidates(*found), family)

    assert own_error(parity) == pytest.approx(2)  # V8: boxes that share nothing; end to end: two lost, two made up


def test_images_have_the_error_of_all_together_as_their_mean():
    one = compare_candidates(candidates((3, 0, 0.5, BOX)), candidates((3, 0, 0.25, BOX)), V8)
    two = compare_candidates(candidates((3, 0, 1.0, BOX)), candidates(), V8)
    mean = (0.25 + 1) / 2

    assert (one.error_for(mean) + two.error_for(mean)) / 2 == pytest.approx((0.5 * 0.25 + 1) / (0.25 + 1))


def error_of(best, found, family=V8):
    return error_of_best(candidates(*best), candidates(*found), family)


@pytest.mark.parametrize("family", [V8, V10])
def test_the_best_candidates_count_the_same_however_low_their_scores_are(family):
    high, low = ((3, 0, 0.8, BOX),), ((3, 0, 0.008, BOX),)

    assert error_of(high, ((3, 0, 0.4, BOX),), family) == pytest.approx(np.log(2))
    assert error_of(low, ((3, 0, 0.004, BOX),), family) == pytest.approx(np.log(2))
    assert error_of(low, ((3, 0, 0.016, BOX),), family) == pytest.approx(np.log(2))


@pytest.mark.parametrize("family", [V8, V10])
def test_of_the_best_candidates_equal_ones_have_no_error_and_lost_ones_that_of_a_lost_score_and_box(family):
    best = ((3, 0, 0.5, BOX), (7, 2, 0.002, (0.0, 0.0, 8.0, 4.0)))

    assert error_of(best, best, family) == 0
    assert error_of(best, best[:1], family) == pytest.approx((0 + 3) / 2)
    assert error_of(best, ((3, 0, 1e-6, BOX), best[1]), family) == pytest.approx((1 + 0) / 2)
    assert error_of((), best, family) == 0


def test_a_shifted_box_of_a_best_candidate_costs_what_it_no_longer_covers_twice():
    shifted = (15.0, 10.0, 35.0, 30.0)  # IoU 0.6

    assert error_of(((3, 0, 0.01, BOX),), ((3, 0, 0.01, shifted),)) == pytest.approx(2 * 0.4)


def test_the_best_candidates_are_those_of_the_highest_scores_in_their_order():
    best = best_candidates(candidates(*((i, 0, score, BOX) for i, score in enumerate((0.1, 0.5, 0.02, 0.5)))), 3)

    assert best.cell.tolist() == [0, 1, 3]
