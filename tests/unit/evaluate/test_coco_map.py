"""mAP equals that of pycocotools on anything, and does not depend on the order of images.

Matching is held against cases worked by hand; the standard error of a difference against what theory says.
"""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edge.errors import DatasetError
from edge.evaluate.coco_map import (
    Accumulator,
    error_of_difference,
    match,
)
from edge.evaluate.truth import GroundTruth
from tests.support import values


def map_by_pycocotools(detected, truths):
    """Return mAP50-95 and mAP50 of detections against `truths`, both by image id; -1 where nothing is labelled."""
    numbers = {image_id: number for number, image_id in enumerate(sorted(truths), 1)}
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO()
        reference.dataset = _instances(truths, numbers, detected)
        reference.createIndex()
        results = _results(detected, numbers)
        found = reference.loadRes(results) if results else COCO()
        evaluation = COCOeval(reference, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])


def _instances(truths, numbers, detected):
    annotations = [
        {"image_id": numbers[image_id], "category_id": int(class_id) + 1, "bbox": _xywh(box), "iscrowd": int(crowd)}
        for image_id, truth in truths.items()
        for box, class_id, crowd in zip(truth.xyxy.tolist(), truth.class_id, truth.is_crowd, strict=True)
    ]
    for number, annotation in enumerate(annotations, 1):
        _, _, width, height = annotation["bbox"]
        annotation.update(id=number, area=width * height)
    classes = {a["category_id"] for a in annotations} | {int(c) + 1 for d in detected.values() for c in d.class_id}
    return {
        "info": {},
        "images": [{"id": number} for number in numbers.values()],
        "annotations": annotations,
        "categories": [{"id": category_id, "name": str(category_id)} for category_id in sorted(classes)],
    }


def _results(detected, numbers):
    return [
        {"image_id": numbers[image_id], "category_id": int(class_id) + 1, "bbox": _xywh(box), "score": float(score)}
        for image_id, detections in detected.items()
        for box, class_id, score in zip(detections.xyxy.tolist(), detections.class_id, detections.score, strict=True)
    ]


def _xywh(xyxy):
    left, top, right, bottom = xyxy
    return [left, top, right - left, bottom - top]


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


def _match(detected, score, truth, crowd=None):
    return match(
        np.array(detected, float).reshape(-1, 4),
        np.array(score, float),
        truth=np.array(truth, float).reshape(-1, 4),
        is_crowd=np.array([False] * len(truth) if crowd is None else crowd, bool),
    )


def test_single_box_comes_before_a_crowd_that_overlaps_more():
    result = _match([[0, 0, 10, 10]], [0.9], [[0, 0, 20, 20], [0, 0, 10, 12]], crowd=[True, False])

    assert result.is_matched[0, 0]
    assert not result.is_ignored[0, 0]
    assert result.is_ignored[9, 0]  # at 0.95 only the crowd is left


def test_last_of_equal_overlaps_is_taken_as_coco_does():
    """The first detection lies midway between two boxes; taking the second leaves the first to the other detection."""
    result = _match([[2.5, 0, 12.5, 10], [0, 0, 10, 10]], [0.9, 0.8], [[0, 0, 10, 10], [5, 0, 15, 10]])

    assert result.is_matched[0].tolist() == [True, True]


BOX = [0.0, 0.0, 10.0, 10.0]


def accumulated(found, *, labelled=None, order=1):
    """One object on each image; `found` says whether it is found."""
    accumulator = Accumulator()
    for number, is_found in list(enumerate(found))[::order]:
        boxes = [BOX] if labelled is None or labelled[number] else []
        accumulator.add(f"{number:03}", values.detections([BOX] * is_found), GroundTruth.of(boxes, [0] * len(boxes)))
    return accumulator


def test_a_model_differs_from_itself_by_nothing():
    found = [True, False] * 20

    assert error_of_difference(accumulated(found), accumulated(found)) == 0


@pytest.mark.parametrize(("images", "lost"), [(64, 6), (64, 32), (200, 20)])
def test_objects_that_one_model_misses_at_random_give_the_error_of_a_share(images, lost):
    """Average precision is the recall here, so the error is that of a binomial share."""
    missed = [number < lost for number in range(images)]
    share = lost / images

    error = error_of_difference(accumulated([True] * images), accumulated([not one for one in missed]))

    assert error == pytest.approx(np.sqrt(share * (1 - share) / images), rel=0.25)


def test_the_order_of_images_does_not_matter_and_two_runs_are_equal():
    one, other = [True] * 30, [number % 3 > 0 for number in range(30)]

    first = error_of_difference(accumulated(one), accumulated(other))

    assert first == error_of_difference(accumulated(one, order=-1), accumulated(other, order=-1)) > 0


@pytest.mark.parametrize("found", [[True], [False]])
def test_a_single_image_says_nothing(found):
    assert error_of_difference(accumulated([True]), accumulated(found)) is None


def test_a_single_image_with_labels_among_others_says_nothing():
    labelled = [True, False, False]

    error = error_of_difference(accumulated([True] * 3, labelled=labelled), accumulated([False] * 3, labelled=labelled))

    assert error is None  # 1 against 0 in every draw that has the labelled image: chance looks like certainty


def test_draws_without_any_labelled_image_are_passed_over():
    labelled = [True, True, False]

    error = error_of_difference(accumulated([True] * 3, labelled=labelled), accumulated([False] * 3, labelled=labelled))

    assert error == pytest.approx(0)  # 1 against 0 in every draw that has a labelled image


def test_different_images_are_refused():
    with pytest.raises(ValueError, match="of different images"):
        error_of_difference(accumulated([True, True]), accumulated([True]))
