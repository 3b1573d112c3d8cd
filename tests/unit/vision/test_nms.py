"""Suppression against a slow, obvious implementation: one pair at a time, as in the textbook."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.vision import nms
from edge.vision.nms import iou_matrix, kept_by_nms
from tests.support import slow_detections


def random_boxes(seed, count):
    # Whole pixels: then both implementations compute the same IoU without rounding near the threshold.
    random = np.random.default_rng(seed)
    corner = random.integers(0, 60, (count, 2))
    xyxy = np.concatenate([corner, corner + random.integers(0, 40, (count, 2))], axis=1).astype(np.float32)
    score = (random.integers(0, 50, count) / 50).astype(np.float32)  # with ties
    return xyxy, score, random.integers(0, 3, count)


@given(st.integers(0, 10_000), st.integers(0, 60), st.sampled_from([0.0, 0.3, 0.45, 0.7]))
def test_equals_the_textbook(seed, count, iou_threshold):
    xyxy, score, group = random_boxes(seed, count)

    kept = kept_by_nms(xyxy, score, group, iou_threshold=iou_threshold)

    assert kept.tolist() == slow_detections.kept_by_nms(xyxy.tolist(), score.tolist(), group.tolist(), iou_threshold)


@pytest.mark.parametrize("pairs_at_once", [1, 7, 1000])
def test_pairs_in_several_portions_equal_the_textbook(pairs_at_once, monkeypatch):
    monkeypatch.setattr(nms, "_PAIRS_AT_ONCE", pairs_at_once)
    xyxy, score, group = random_boxes(7, 200)

    kept = kept_by_nms(xyxy, score, group, iou_threshold=0.4)

    assert kept.tolist() == slow_detections.kept_by_nms(xyxy.tolist(), score.tolist(), group.tolist(), 0.4)


def test_a_chain_of_overlaps_keeps_every_other_box():
    # Each box overlaps only its neighbours: a suppressed box must not suppress the next one.
    xyxy = np.array([[x, 0, x + 10, 10] for x in range(0, 50, 5)], np.float32)
    score = np.linspace(0.9, 0.1, 10, dtype=np.float32)

    kept = kept_by_nms(xyxy, score, np.zeros(10, np.int64), iou_threshold=0.2)

    assert kept.tolist() == [0, 2, 4, 6, 8]


def test_a_box_that_equals_the_threshold_stays():
    xyxy = np.array([[0, 0, 10, 10], [0, 0, 10, 20]], np.float32)  # IoU = 100 / 200

    kept = kept_by_nms(xyxy, np.array([0.9, 0.8], np.float32), np.zeros(2, np.int64), iou_threshold=0.5)

    assert kept.tolist() == [0, 1]


def test_iou_of_known_boxes():
    a = np.array([[0, 0, 10, 10]], np.float32)
    b = np.array([[5, 0, 15, 10], [20, 20, 30, 30], [0, 0, 10, 10], [3, 3, 3, 3]], np.float32)

    assert iou_matrix(a, b).tolist() == [[pytest.approx(1 / 3), 0, 1, 0]]
