"""The standard error of a difference: nothing for equal models, what theory says for independent ones."""

import numpy as np
import pytest

from edge.evaluate.coco_map import Accumulator, error_of_difference
from edge.evaluate.truth import GroundTruth
from tests.support.values import detections

BOX = [0.0, 0.0, 10.0, 10.0]


def accumulated(found, *, labelled=None, order=1):
    """One object on each image; `found` says whether it is found."""
    accumulator = Accumulator()
    for number, is_found in list(enumerate(found))[::order]:
        boxes = [BOX] if labelled is None or labelled[number] else []
        accumulator.add(f"{number:03}", detections([BOX] * is_found), GroundTruth.of(boxes, [0] * len(boxes)))
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
