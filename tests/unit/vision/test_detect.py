import numpy as np

from edge.types import HeadFamily, ImageSize, Preprocess
from edge.vision.heads import Detector, Head
from edge.vision.letterbox import fit

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
