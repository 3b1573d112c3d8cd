"""mAP equals that of pycocotools on anything, and does not depend on the order of images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import DatasetError
from edge.evaluate.coco_map import Accumulator, map_by_pycocotools
from edge.evaluate.truth import GroundTruth
from tests.support import values


def measure(detected, truths):
    accumulator = Accumulator()
    for image_id, detections in detected:
        accumulator.add(image_id, detections, truths[image_id])
    return accumulator.result()


def _scene(random, *, decimals, crowds):
    """One image: some labelled boxes, jittered detections of them, and false ones."""
    count = int(random.integers(0, 8))
    corner = random.integers(0, 60, (count, 2))
    boxes = np.concatenate([corner, corner + random.integers(4, 40, (count, 2))], axis=1)
    class_id = random.integers(0, 3, count)
    copies = int(random.integers(0, 3))
    jittered = np.repeat(boxes, copies, axis=0) + random.integers(-3, 4, (count * copies, 4))
    false = np.tile(random.integers(0, 50, (int(random.integers(0, 5)), 2)), 2) + np.array([0, 0, 12, 9])
    detected = np.concatenate([jittered, false])
    detected[:, 2:] = np.maximum(detected[:, 2:], detected[:, :2] + 1)
    classes = np.concatenate([np.repeat(class_id, copies), random.integers(0, 4, len(false))])
    score = np.round(random.random(len(detected)), decimals)
    truth = GroundTruth.of(boxes.tolist(), class_id.tolist(), (random.random(count) < crowds).tolist())
    return values.detections(detected, score, classes), truth


def _scenes(seed, *, images, decimals, crowds):
    random = np.random.default_rng(seed)
    pairs = {f"image-{i:02}": _scene(random, decimals=decimals, crowds=crowds) for i in range(images)}
    return {k: d for k, (d, _) in pairs.items()}, {k: t for k, (_, t) in pairs.items()}


def _ours(detected, truths):
    try:
        accuracy = measure(detected.items(), truths)
    except DatasetError:
        return -1.0, -1.0  # what COCO says where nothing is labelled
    return accuracy.map50_95, accuracy.map50


@given(
    seed=st.integers(0, 2**32 - 1),
    images=st.integers(1, 10),
    decimals=st.sampled_from([1, 2, 6]),
    crowds=st.sampled_from([0.0, 0.3, 1.0]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_equals_pycocotools(seed, images, decimals, crowds):
    """One decimal makes scores tie within and between images."""
    detected, truths = _scenes(seed, images=images, decimals=decimals, crowds=crowds)

    assert _ours(detected, truths) == pytest.approx(map_by_pycocotools(detected, truths), abs=1e-6)


def test_equals_pycocotools_with_more_than_a_hundred_detections():
    random = np.random.default_rng(3)
    boxes = random.integers(0, 500, (130, 2))
    boxes = np.concatenate([boxes, boxes + 20], axis=1)
    detected = {"a": values.detections(boxes, random.random(130), [0] * 130)}
    truths = {"a": GroundTruth.of(boxes.tolist(), [0] * 130)}

    ours = _ours(detected, truths)

    assert ours == pytest.approx(map_by_pycocotools(detected, truths), abs=1e-6)
    assert ours[0] < 0.8


def test_equals_pycocotools_on_fractional_boxes():
    random = np.random.default_rng(11)
    boxes = random.random((40, 2)) * 300
    boxes = np.concatenate([boxes, boxes + 20 + random.random((40, 2)) * 50], axis=1)
    detected = {"a": values.detections(boxes + random.normal(0, 2, (40, 4)), random.random(40), [0] * 40)}
    truths = {"a": GroundTruth.of(boxes.tolist(), [0] * 40)}

    assert _ours(detected, truths) == pytest.approx(map_by_pycocotools(detected, truths), abs=1e-6)


def test_order_of_images_does_not_matter():
    detected, truths = _scenes(5, images=12, decimals=1, crowds=0.1)
    forward = measure(detected.items(), truths)

    backward = measure(reversed(detected.items()), truths)

    assert forward == backward


def test_perfect_detections_have_a_map_of_one():
    boxes = [[10, 10, 50, 50], [60, 60, 90, 90]]

    accuracy = measure([("a", values.detections(boxes, [0.9, 0.8], [0, 4]))], {"a": GroundTruth.of(boxes, [0, 4])})

    assert (accuracy.map50_95, accuracy.map50) == pytest.approx((1.0, 1.0))
    assert [(c.class_id, c.boxes) for c in accuracy.per_class] == [(0, 1), (4, 1)]
    assert (accuracy.images, accuracy.boxes) == (1, 2)


def test_half_found_by_hand():
    """One of two boxes found: precision is 1 up to recall 0.5, which is 51 of the 101 points."""
    boxes = [[10, 10, 50, 50], [60, 60, 90, 90]]

    accuracy = measure([("a", values.detections(boxes[:1], [0.9], [0]))], {"a": GroundTruth.of(boxes, [0, 0])})

    assert accuracy.map50_95 == pytest.approx(51 / 101)


def test_class_without_labels_does_not_count():
    box = [[10, 10, 50, 50]]
    detections = values.detections(box * 2, [0.9, 0.8], [0, 1])

    accuracy = measure([("a", detections)], {"a": GroundTruth.of(box, [0])})

    assert [c.class_id for c in accuracy.per_class] == [0]
    assert accuracy.map50 == pytest.approx(1.0)


def test_nothing_labelled_is_nothing_to_measure():
    with pytest.raises(DatasetError, match="1 images have no labelled box"):
        measure([("a", values.detections([[0, 0, 9, 9]], [0.5], [0]))], {"a": GroundTruth.of([], [])})


def test_image_added_twice_is_refused():
    accumulator = Accumulator()
    accumulator.add("a", values.detections([], [], []), GroundTruth.of([], []))

    with pytest.raises(ValueError, match="was added before"):
        accumulator.add("a", values.detections([], [], []), GroundTruth.of([], []))


def test_ground_truth_of_other_shapes_is_refused():
    with pytest.raises(ValueError, match=r"expected xyxy \(N, 4\)"):
        GroundTruth(xyxy=np.zeros((2, 4)), class_id=np.zeros(1, np.int32), is_crowd=np.zeros(2, bool))
