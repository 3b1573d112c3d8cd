"""The golden gate on detections whose answer is worked out by hand, and the file that carries them."""

from dataclasses import dataclass

import numpy as np
import pytest

from edge.errors import TensorMismatchError
from edge.evaluate.golden import (
    ClassScore,
    GoldenImage,
    GoldenSet,
    compare_golden,
    decode_golden,
    detect_golden,
    encode_golden,
    floor_of,
)
from edge.types import ImageSize, Preprocess
from tests.support import values
from tests.support.raised import code_of

SURE = 0.4


@dataclass
class Limits:
    min_recall: float = 0.9
    max_extra: float = 0.1
    min_iou: float = 0.5
    max_score_error: float = 0.1


def detections(*rows):
    """Rows of left, class, score; every box is 10 px wide and high."""
    boxes = [[x, 0, x + 10, 10] for x, _, _ in rows]
    return values.detections(boxes, score=[score for *_, score in rows], class_id=[one for _, one, _ in rows])


def compare(expected, found, **limits):
    return compare_golden([expected], [found], sure_score=SURE, limits=Limits(**limits))


TEN = [(100 * index, index % 2, 0.9) for index in range(10)]


def test_equal_detections_pass():
    score = compare(detections(*TEN), detections(*TEN))

    assert score.is_passed
    assert (score.expected, score.found, score.extra) == (10, 10, 0)
    assert (score.recall, score.mean_iou, score.score_error) == (1.0, 1.0, 0.0)
    assert score.per_class == {0: ClassScore(expected=5, found=5, extra=0), 1: ClassScore(expected=5, found=5, extra=0)}


def test_one_in_ten_may_be_lost_and_two_may_not():
    assert compare(detections(*TEN), detections(*TEN[:9])).is_passed

    score = compare(detections(*TEN), detections(*TEN[:8]))
    assert not score.is_passed
    assert score.recall == 0.8
    assert "8 of 10" in score.failures[0]


def test_a_score_that_falls_a_little_below_sure_is_still_found():
    just_sure, little_less = [(x, c, 0.41) for x, c, _ in TEN], [(x, c, 0.35) for x, c, _ in TEN]

    assert compare(detections(*just_sure), detections(*little_less)).found == 10
    assert compare(detections(*little_less), detections(*just_sure)).extra == 0


def test_below_the_floor_nothing_is_found():
    faint = [(x, c, floor_of(SURE) - 0.01) for x, c, _ in TEN]

    assert compare(detections(*TEN), detections(*faint)).found == 0
    assert compare(detections(*faint), detections(*TEN)).extra == 10


def test_another_class_or_another_place_is_both_lost_and_extra():
    score = compare(detections((0, 0, 0.9), (100, 0, 0.9)), detections((0, 1, 0.9), (106, 0, 0.9)))

    assert (score.found, score.extra) == (0, 2)
    assert score.per_class == {0: ClassScore(expected=2, found=0, extra=1), 1: ClassScore(expected=0, found=0, extra=1)}


def test_overlap_is_that_of_the_boxes():
    score = compare(detections((0, 0, 0.9)), detections((2, 0, 0.9)))  # 8 of 12 columns are shared

    assert score.mean_iou == pytest.approx(8 / 12)


def test_one_box_confirms_one_object():
    twins = detections((0, 0, 0.9), (1, 0, 0.8))

    assert compare(twins, detections((0, 0, 0.9))).found == 1


def test_a_detection_that_the_float_model_does_not_have_counts_against_it():
    score = compare(detections(*TEN), detections(*TEN, (5000, 0, 0.9), (6000, 0, 0.9)))

    assert (score.extra, score.extra_share) == (2, 0.2)
    assert "2 sure detections that the float model does not have" in score.failures[0]


def test_scores_that_all_move_are_a_failure():
    moved = [(x, c, 0.75) for x, c, _ in TEN]

    score = compare(detections(*TEN), detections(*moved))
    assert score.score_error == pytest.approx(0.15, abs=1e-6)
    assert "0.150" in score.failures[0]


def test_numbers_that_are_none_are_not_found():
    broken = detections(*TEN)
    broken.score[:5] = np.nan
    broken.xyxy[5:] = np.nan

    assert compare(detections(*TEN), broken).found == 0


def test_images_on_which_nothing_is_sure_prove_nothing():
    assert not compare(detections(), detections()).is_passed
    assert not compare_golden([], [], sure_score=SURE, limits=Limits()).is_passed


def test_images_are_not_mixed_up():
    with pytest.raises(ValueError, match="zip"):
        compare_golden([detections()], [], sure_score=SURE, limits=Limits())
    score = compare_golden(
        [detections((0, 0, 0.9)), detections()],
        [detections(), detections((0, 0, 0.9))],
        sure_score=SURE,
        limits=Limits(),
    )
    assert (score.found, score.extra) == (0, 1)


def test_the_numbers_name_the_classes():
    score = compare(detections(*TEN), detections(*TEN[:8]))

    content = score.as_json(["car", "bus"])
    assert content["per_class"] == {"car": [5, 4, 0], "bus": [5, 4, 0]}
    assert content["passed"] is False
    assert score.as_json(["car", "car"])["per_class"] == {"car": [10, 8, 0]}


def golden(**changes):
    values = {
        "model_sha256": "a" * 64,
        "preprocess_sha256": "b" * 64,
        "engine": "openvino 2026.4",
        "labels": ("car", "Lkw groß"),
        "sure_score": SURE,
        "iou_threshold": 0.45,
        "max_detections": 300,
        "images": (
            GoldenImage(path="golden/00.png", detections=detections(*TEN)),
            GoldenImage(path="golden/01.png", detections=detections()),
        ),
    }
    return GoldenSet(**{**values, **changes})


def test_the_file_is_read_back():
    back = decode_golden(encode_golden(golden()))

    assert back.labels == ("car", "Lkw groß")
    assert [image.path for image in back.images] == ["golden/00.png", "golden/01.png"]
    np.testing.assert_array_equal(back.images[0].detections.xyxy, detections(*TEN).xyxy)
    np.testing.assert_allclose(back.images[0].detections.score, detections(*TEN).score, atol=1e-4)
    assert len(back.images[1].detections) == 0
    assert encode_golden(back) == encode_golden(golden())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        encode_golden(golden()).replace(b"edge.golden/1", b"edge.golden/2"),
        encode_golden(golden()).replace(b"0.9,", b"NaN,"),
        encode_golden(golden()).replace(b", 10.0]", b"]"),
        encode_golden(golden()).replace(b'"sure_score": 0.4', b'"sure_score": 0'),
    ],
)
def test_a_file_that_is_something_else_is_refused(content):
    assert code_of(decode_golden, content) == "verify.golden"


class Engine:
    """Gives each row's first pixel out, and remembers how many rows it was given."""

    name = "fake 1"
    preprocess = Preprocess(size=ImageSize(width=4, height=2))

    def __init__(self, max_batch):
        self.max_batch = max_batch
        self.canvases = tuple(np.zeros((max_batch, 2, 4, 3), np.uint8) for _ in range(2))
        self.counts = []

    def start(self, index, count):
        self.counts.append(count)

    def wait(self, index):
        return self.canvases[index][:, 0, 0, 0].astype(np.float32)

    def close(self):
        pass


class Detector:
    """Turns each row into one detection at that pixel's place."""

    def detect(self, output, letterboxes):
        assert len(output) == len(letterboxes)
        return [detections((value, 0, 0.9)) for value in output]


@pytest.mark.parametrize("max_batch", [1, 2, 4, 7, 16])
def test_every_batch_is_full_and_every_image_answers_for_itself(max_batch):
    engine = Engine(max_batch)
    canvases = [np.full((2, 4, 3), 10 * index, np.uint8) for index in range(7)]

    found = detect_golden(canvases, engine, Detector())

    assert [float(one.xyxy[0, 0]) for one in found] == [0, 10, 20, 30, 40, 50, 60]
    assert set(engine.counts) == {max_batch}


def test_an_image_of_another_size_is_refused():
    with pytest.raises(TensorMismatchError):
        detect_golden([np.zeros((3, 4, 3), np.uint8)], Engine(1), Detector())
