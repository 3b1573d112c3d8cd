"""Which labelled classes meet detections of another class: a permutation is refused, an error of the model is not."""

import re

import numpy as np
import pytest

from edge.errors import DatasetError
from edge.evaluate.class_names import ClassBlind
from edge.evaluate.truth import GroundTruth
from tests.support import values

NAMES = ("person", "car", "bus", "truck")


def seen(pairs, *, also=(), score=0.9, shift=0.0, is_int8=False):
    """One image of boxes side by side: `pairs` of the labelled class and the detected one, `also` more detections."""
    spots = [[50.0 * number, 0.0, 50.0 * number + 40, 40.0] for number in range(len(pairs))]
    blind = ClassBlind(NAMES, is_int8=is_int8)
    found = [(spots[number], class_id) for number, (_, class_id) in enumerate(pairs)]
    found += [(spots[number], class_id) for number, class_id in also]
    boxes = np.array([box for box, _ in found], np.float32) + np.float32(shift)
    detections = values.detections(boxes, score=score, class_id=[class_id for _, class_id in found])
    blind.add(detections, GroundTruth.of(spots, [class_id for class_id, _ in pairs]))
    return blind


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([(0, 1)] * 3 + [(1, 0)], r"person is detected as car \(3 of 3 boxes\), car is detected as person \(1 of 1"),
        ([(0, 1), (1, 2), (2, 0), (0, 1)], "person is detected as car"),
        ([(1, 0)] * 8 + [(2, 2)] * 7, r"car is detected as person \(8 of 8 boxes\)$"),
    ],
    ids=["two change places", "three in a circle", "most are another"],
)  # fmt: skip
def test_a_permutation_is_refused_as_it_looks(pairs, told):
    with pytest.raises(DatasetError) as refused:
        seen(pairs).require_same_classes("labels")

    assert refused.value.exit_code == 2
    assert refused.value.problem.startswith("labels: classes are permuted: ")
    assert re.search(told, refused.value.problem)


@pytest.mark.parametrize(
    ("pairs", "notes"),
    [
        ([(0, 0)] * 9 + [(3, 2)] * 4, ("4 of 4 boxes of truck are detected as bus",)),
        ([(0, 0)] * 9 + [(3, 2)] * 2, ()),
        ([(0, 1), (1, 0)], ()),
        ([(0, 0)] * 5 + [(0, 1)] * 5 + [(1, 1)] * 5 + [(1, 0)] * 5, ()),
    ],
    ids=["an error of the model", "too few to tell", "as few that change places", "a model that guesses"],
)
def test_what_may_be_an_error_of_the_model_is_at_most_noted(pairs, notes):
    blind = seen(pairs)

    blind.require_same_classes("labels")
    assert blind.notes == notes


def test_two_classes_at_one_place_are_a_doubt_and_no_contradiction():
    blind = seen([(0, 1)] * 9, also=[(number, 0) for number in range(9)])

    blind.require_same_classes("labels")
    assert blind.notes == ()


@pytest.mark.parametrize("how", [{"score": 0.2}, {"shift": 200.0}], ids=["not sure", "elsewhere"])
def test_boxes_that_meet_nothing_are_noted_as_such(how):
    blind = seen([(0, 1)] * 30, **how)

    blind.require_same_classes("labels")
    assert len(blind.notes) == 1
    assert " of 30 labelled boxes lie where the model detects something" in blind.notes[0]
    assert "INT8" not in blind.notes[0]
    assert "INT8 by this table" in seen([(0, 1)] * 30, is_int8=True, **how).notes[0]
