"""Matching against cases worked by hand."""

import numpy as np
import pytest

from edge.evaluate.coco_map import IOU_THRESHOLDS, iou_of_xyxy, match


def _match(detected, score, truth, crowd=None):
    return match(
        np.array(detected, float).reshape(-1, 4),
        np.array(score, float),
        truth=np.array(truth, float).reshape(-1, 4),
        is_crowd=np.array([False] * len(truth) if crowd is None else crowd, bool),
    )


def test_iou_by_hand():
    detected = np.array([[0, 0, 10, 10]], float)
    truth = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [10, 10, 20, 20], [0, 0, 20, 20]], float)

    plain = iou_of_xyxy(detected, truth, is_crowd=np.zeros(4, bool))
    crowd = iou_of_xyxy(detected, truth, is_crowd=np.ones(4, bool))

    np.testing.assert_allclose(plain, [[1, 50 / 150, 0, 100 / 400]])
    np.testing.assert_allclose(crowd, [[1, 0.5, 0, 1]])


def test_thresholds_are_those_of_coco():
    np.testing.assert_allclose(IOU_THRESHOLDS, [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])


def test_one_box_takes_one_detection_the_one_of_highest_score():
    result = _match([[0, 0, 10, 10], [0, 0, 10, 9]], [0.4, 0.9], [[0, 0, 10, 10]])

    assert result.score.tolist() == [0.9, 0.4]
    assert result.is_matched[0].tolist() == [True, False]
    assert result.is_matched[9].tolist() == [False, True]  # IoU 0.9 is too little at 0.95, so the second gets it


def test_iou_of_exactly_the_threshold_counts():
    result = _match([[0, 0, 10, 5]], [0.9], [[0, 0, 10, 10]])

    assert result.is_matched[:, 0].tolist() == [True] + [False] * 9


def test_crowd_takes_any_number_and_they_are_ignored():
    detected = [[0, 0, 5, 5], [5, 5, 10, 10], [50, 50, 60, 60]]

    result = _match(detected, [0.9, 0.8, 0.7], [[0, 0, 20, 20]], crowd=[True])

    assert result.truths == 0
    assert result.is_ignored[0].tolist() == [True, True, False]


def test_single_box_comes_before_a_crowd_that_overlaps_more():
    result = _match([[0, 0, 10, 10]], [0.9], [[0, 0, 20, 20], [0, 0, 10, 12]], crowd=[True, False])

    assert result.is_matched[0, 0]
    assert not result.is_ignored[0, 0]
    assert result.is_ignored[9, 0]  # at 0.95 only the crowd is left


@pytest.mark.parametrize(("detected", "truth"), [([], []), ([], [[0, 0, 1, 1]]), ([[0, 0, 1, 1]], [])])
def test_nothing_on_one_side(detected, truth):
    result = _match(detected, [0.5] * len(detected), truth)

    assert result.is_matched.shape == (10, len(detected))
    assert not result.is_matched.any()
    assert result.truths == len(truth)


def test_at_most_a_hundred_detections_count():
    boxes = [[0, 0, 10, 10]] * 150

    result = _match(boxes, np.linspace(0, 1, 150), [[0, 0, 10, 10]])

    assert len(result.score) == 100
    assert result.score.min() == pytest.approx(50 / 149)


def test_last_of_equal_overlaps_is_taken_as_coco_does():
    """The first detection lies midway between two boxes; taking the second leaves the first to the other detection."""
    result = _match([[2.5, 0, 12.5, 10], [0, 0, 10, 10]], [0.9, 0.8], [[0, 0, 10, 10], [5, 0, 15, 10]])

    assert result.is_matched[0].tolist() == [True, True]
