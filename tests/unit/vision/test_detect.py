"""Detections in the pixels of their frames; suppression against a slow one, one pair at a time as in the textbook."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import ModelError
from edge.types import CandidateRows, HeadFamily, ImageSize, Preprocess
from edge.vision import boxes
from edge.vision.boxes import fit, iou_matrix, kept_by_nms
from edge.vision.heads import Detector, Head
from tests.support import slow_detections

SIZE = ImageSize(width=64, height=64)


def detector(family=HeadFamily.YOLOV8, **changes):
    settings = {"score_threshold": 0.3, "iou_threshold": 0.5, "max_detections": 10} | changes
    return Detector(head=Head(family=family, size=SIZE, strides=(8, 16, 32)), **settings)


def letterboxes(*sizes):
    return [fit(ImageSize(width=w, height=h), Preprocess(size=SIZE)) for w, h in sizes]


def yolov8_output(rows):
    """Rows of (cx, cy, w, h, score_a, score_b) -> (B, 6, A)."""
    return np.array(rows, np.float32).transpose(0, 2, 1)


def test_each_frame_gets_its_own_boxes_in_its_own_pixels():
    output = yolov8_output([[(32, 32, 16, 16, 0.9, 0.1)], [(32, 32, 16, 16, 0.1, 0.8)]])

    first, second = detector().detect(output, letterboxes((128, 128), (64, 32)))

    assert first.xyxy.tolist() == [[48, 48, 80, 80]]
    assert second.xyxy.tolist() == [[24, 8, 40, 24]]  # canvas 24..40 minus 16 px of border above
    assert (first.class_id.tolist(), second.class_id.tolist()) == ([0], [1])


def test_two_classes_at_one_place_both_stay_and_doubles_of_one_class_go():
    output = yolov8_output([[(32, 32, 16, 16, 0.9, 0.0), (33, 32, 16, 16, 0.8, 0.0), (32, 32, 16, 16, 0.0, 0.7)]])

    (found,) = detector().detect(output, letterboxes((64, 64)))

    assert found.class_id.tolist() == [0, 1]
    np.testing.assert_allclose(found.score, [0.9, 0.7])


def test_the_same_box_in_two_frames_stays_in_both():
    output = yolov8_output([[(32, 32, 16, 16, 0.9, 0.0)]] * 2)

    assert [len(found) for found in detector().detect(output, letterboxes((64, 64), (64, 64)))] == [1, 1]


@pytest.mark.parametrize("is_picked", [False, True])
def test_nan_is_refused_where_a_model_is_measured(is_picked):
    output = yolov8_output([[(32, 32, 16, 16, 0.9, 0.0), (32, 32, 16, 16, np.nan, 0.1)]])
    picked = CandidateRows(
        row=np.array([0]), cell=np.array([0]), values=output[0, :, :1].T, score_threshold=0.3, whole=lambda: output
    )
    given_ = picked if is_picked else output

    assert len(detector().detect(given_, letterboxes((64, 64)))[0]) == 1
    with pytest.raises(ModelError, match=r"m: the model's output is not a number \(NaN\)"):
        detector(refuses_nan_of="m").detect(given_, letterboxes((64, 64)))
    assert detector(refuses_nan_of="m").detect(output[:, :, :1], letterboxes((64, 64)))


def test_only_the_best_are_kept_when_there_are_too_many():
    output = yolov8_output([[(10 + 12 * i, 10, 5, 5, 0.4 + 0.1 * i, 0) for i in range(4)]])

    (found,) = detector(max_detections=2).detect(output, letterboxes((64, 64)))

    np.testing.assert_allclose(found.score, [0.7, 0.6])


def test_an_end_to_end_head_is_not_suppressed_but_sorted():
    output = np.array([[[0, 0, 10, 10, 0.5, 1], [1, 0, 10, 10, 0.9, 1]]], np.float32)

    (found,) = detector(HeadFamily.YOLOV10).detect(output, letterboxes((64, 64)))

    np.testing.assert_allclose(found.score, [0.9, 0.5])


def test_an_empty_frame_gives_empty_detections():
    (found,) = detector().detect(yolov8_output([[(32, 32, 16, 16, 0.1, 0.1)]]), letterboxes((64, 64)))

    assert len(found) == 0
    assert found.xyxy.shape == (0, 4)


def test_the_limit_counts_only_the_classes_that_are_wanted():
    crowd = [(10 + 12 * i, 10, 5, 5, 0.9 - 0.1 * i, 0) for i in range(4)]  # class 0, all better than the one of class 1
    output = yolov8_output([[*crowd, (10, 40, 5, 5, 0, 0.4)]] * 2)

    only_one, all_classes = detector(max_detections=2).detect(
        output, letterboxes((64, 64), (64, 64)), class_ids=[np.array([1], np.int32), None]
    )

    assert only_one.class_id.tolist() == [1]
    np.testing.assert_allclose(only_one.score, [0.4])
    np.testing.assert_allclose(all_classes.score, [0.9, 0.8])


def test_the_limit_of_an_end_to_end_head_counts_only_the_classes_that_are_wanted():
    output = np.array([[[0, 0, 10, 10, 0.9, 0], [20, 0, 30, 10, 0.5, 1], [40, 0, 50, 10, 0.6, 1]]], np.float32)

    (found,) = detector(HeadFamily.YOLOV10, max_detections=2).detect(
        output, letterboxes((64, 64)), class_ids=[np.array([1, 2], np.int32)]
    )

    np.testing.assert_allclose(found.score, [0.6, 0.5])


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
    monkeypatch.setattr(boxes, "_PAIRS_AT_ONCE", pairs_at_once)
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
