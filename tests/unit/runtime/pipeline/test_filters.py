"""Which detections of a stream are kept: expected values by hand."""

import numpy as np
import pytest

from edge.runtime.pipeline.loop import IgnoredArea, StreamFilter
from edge.types import ImageSize
from tests.support import values

SIZE = ImageSize(width=200, height=100)
LEFT = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]
TOP = [[0, 0], [1, 0], [1, 0.5], [0, 0.5]]
CAR, PERSON = 0, 1


def found(*boxes):
    """Detections of `(x, y, class)` by their centres, 20 wide and 10 tall."""
    xyxy = [(x - 10, y - 5, x + 10, y + 5) for x, y, _ in boxes]
    score = np.linspace(0.9, 0.5, len(boxes))
    return values.detections(xyxy, score=score, class_id=[kind for *_, kind in boxes])


@pytest.mark.parametrize(
    ("areas", "kept"),
    [
        ([], [0, 1, 2, 3]),
        ([IgnoredArea(polygon=LEFT)], [1, 3]),
        ([IgnoredArea(polygon=LEFT, class_ids=frozenset({CAR}))], [1, 2, 3]),
        ([IgnoredArea(polygon=LEFT, class_ids=frozenset({PERSON})), IgnoredArea(polygon=TOP)], [3]),
        ([IgnoredArea(polygon=[[0, 0], [1, 0], [1, 1], [0, 1]])], []),
    ],
    ids=["none", "left", "cars left", "persons left and all above", "everywhere"],
)
def test_detections_whose_centre_lies_in_an_area_of_their_class_are_left_out(areas, kept):
    # The first box reaches over the middle, its centre does not; the third one's lower edge is outside of TOP.
    before = found((95, 20, CAR), (150, 20, PERSON), (50, 80, PERSON), (199, 99, CAR))

    after = StreamFilter(None, areas, classes=2).keep(before, SIZE)

    assert after.score.tolist() == [before.score[index] for index in kept]
    assert after.xyxy.tolist() == [before.xyxy[index].tolist() for index in kept]
    assert after.class_id.tolist() == [before.class_id[index] for index in kept]


def test_a_frame_without_detections_stays_one():
    assert len(StreamFilter(None, [IgnoredArea(polygon=LEFT)], classes=2).keep(found(), SIZE)) == 0


def test_a_box_that_the_picture_cuts_off_is_in_an_area_that_reaches_to_the_edge():
    at_the_corner = values.detections([[200, 100, 200, 100]])
    corner = IgnoredArea(polygon=[[0.9, 0.9], [1, 0.9], [1, 1], [0.9, 1]])
    assert len(StreamFilter(None, [corner], classes=1).keep(at_the_corner, SIZE)) == 0
