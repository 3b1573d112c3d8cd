"""What every `Tracker` does, whatever it computes."""

import numpy as np
import pytest

from edge.track.bytetrack import ByteTracker
from tests.support.library_tracker import FRAME_NS, LibraryTracker, detections, follow

NONE = detections()


LIBRARY = pytest.param(
    LibraryTracker, marks=pytest.mark.slow(reason="what it draws in is as large as all of TensorRT's bindings")
)


@pytest.fixture(params=[ByteTracker, LIBRARY], ids=lambda kind: kind.__name__)
def tracker(request):
    if request.param is LibraryTracker and (lacking := LibraryTracker.lacking()):
        pytest.skip(lacking)
    return request.param(lost_s=1.0, sure_score=0.5)


def ids(seen):
    return [one.track_id.tolist() for one in seen]


def test_there_may_be_nothing_to_follow(tracker):
    seen = follow(tracker, [NONE, NONE])

    assert [(len(one.track_id), len(one.class_id), one.ended) for one in seen] == [(0, 0, ())] * 2


def test_an_object_has_a_number_from_its_second_frame_on_and_keeps_it(tracker):
    seen = follow(tracker, [detections((100 + 4 * i, 80, 40, 60)) for i in range(30)])

    assert ids(seen)[0] == [0]
    assert {number for (number,) in ids(seen)[1:]} == {1}


def test_two_objects_keep_their_numbers_in_whatever_order_they_are_detected(tracker):
    both = [((100 + 3 * i, 80, 40, 60), (400 - 3 * i, 90, 40, 60)) for i in range(20)]
    seen = follow(tracker, [detections(*(pair if i % 2 else pair[::-1])) for i, pair in enumerate(both)])

    numbers = [one if i % 2 else one[::-1] for i, one in enumerate(ids(seen))][1:]
    assert numbers == [numbers[0]] * 19
    assert len(set(numbers[0])) == 2


def test_types_and_lengths_are_those_of_the_detections(tracker):
    for one in follow(tracker, [detections((50, 50, 20, 20)), NONE, detections((50, 50, 20, 20), (90, 90, 20, 20))]):
        assert one.track_id.dtype == np.int64
        assert one.class_id.dtype == np.int32
        assert one.track_id.shape == one.class_id.shape


def test_an_object_that_is_hidden_for_a_moment_keeps_its_number(tracker):
    frames = [detections((100 + 4 * i, 80, 60, 60)) for i in range(30)]
    frames[12:18] = [NONE] * 6  # 0.24 s of 1 s

    assert ids(follow(tracker, frames))[-1] == [1]


def test_an_object_that_stays_away_is_given_up_once_and_its_number_is_never_used_again(tracker):
    frames = [detections((100, 80, 60, 60))] * 5 + [NONE] * 60 + [detections((100, 80, 60, 60))] * 5
    seen = follow(tracker, frames)

    assert [number for one in seen for number in one.ended] == [1]
    assert ids(seen)[-1] == [2]


def test_an_object_that_jumps_across_the_picture_is_another(tracker):
    frames = [detections((100, 80, 60, 60))] * 5 + [detections((700, 400, 60, 60))] * 5

    assert ids(follow(tracker, frames))[-1] == [2]


def test_a_detection_that_is_not_sure_begins_no_object(tracker):
    assert ids(follow(tracker, [detections((100, 80, 60, 60, 0.3))] * 10)) == [[0]] * 10


def test_a_detection_that_is_not_sure_continues_an_object(tracker):
    frames = [detections((100, 80, 60, 60))] * 5 + [detections((100, 80, 60, 60, 0.3))] * 40

    assert ids(follow(tracker, frames))[-1] == [1]


def test_numbers_that_another_tracker_has_used_are_left_out(tracker):
    tracker.skip(7)
    assert tracker.highest == 7
    seen = follow(tracker, [detections((100, 80, 60, 60))] * 5)

    assert (ids(seen)[-1], tracker.highest) == ([8], 8)


def test_a_reset_gives_up_all_and_goes_on_counting(tracker):
    pair = detections((100, 80, 60, 60), (300, 80, 60, 60))
    follow(tracker, [pair] * 3)

    assert sorted(tracker.reset()) == [1, 2]
    assert tracker.reset() == ()
    again = follow(tracker, [pair] * 3, first_ns=10 * FRAME_NS)
    assert sorted(ids(again)[-1]) == [3, 4]
    assert all(one.ended == () for one in again)
