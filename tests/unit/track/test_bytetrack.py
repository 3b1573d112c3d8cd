"""The street's own identities judge the tracker, beside the library's ByteTrack on the same detections."""

import numpy as np
import pytest

from edge.track.bytetrack import ByteTracker
from tests.support.library_tracker import LibraryTracker
from tests.support.street import SEEDS, identity_scores
from tests.support.trackers import FRAME_NS, detections, follow

POOR = {"jitter": 0.06, "missed": 0.25}


def tracker(**kwargs):
    return ByteTracker(**{"lost_s": 1.0, "sure_score": 0.5} | kwargs)


def of_all_streets(make, **quality):
    scores = [identity_scores(make(lost_s=1.0, sure_score=0.5), seed, **quality) for seed in SEEDS]
    total = sum(count for *_, count in scores)
    return sum(switches for switches, *_ in scores), sum(share * count for _, share, count in scores) / total


def test_objects_of_the_street_keep_their_numbers():
    switches, share = of_all_streets(ByteTracker)  # of 25,000 detections, a tenth missed, boxes 3 % off

    assert switches <= 5
    assert share > 0.9


@pytest.mark.parametrize("quality", [{}, POOR], ids=["usual", "poor"])
def test_numbers_are_exchanged_no_more_often_than_by_the_library(quality):
    if lacking := LibraryTracker.lacking():
        pytest.skip(lacking)

    assert of_all_streets(ByteTracker, **quality)[0] <= of_all_streets(LibraryTracker, **quality)[0]


def test_the_frame_rate_does_not_matter():
    def numbers(every):
        frames = [detections((100 + 2 * i, 80, 60, 60), (500 - 2 * i, 85, 60, 60)) for i in range(0, 160, every)]
        return follow(tracker(), frames, step_ns=every * FRAME_NS)[-1].track_id.tolist()

    assert [numbers(every) for every in (1, 2, 4, 8)] == [[1, 2]] * 4


def test_a_speed_that_is_known_bridges_a_pause():
    frames = [detections((100 + 10 * i, 80, 40, 40)) for i in range(60)]
    frames[30:45] = [detections()] * 15  # moves 150 px meanwhile, nearly four times its width

    assert follow(tracker(), frames)[-1].track_id.tolist() == [1]


def test_a_detector_that_wavers_between_classes_sees_one_object():
    frames = [detections((100 + i, 80, 60, 40, 0.9, 1 if i % 3 == 2 else 0)) for i in range(60)]
    seen = follow(tracker(), frames)

    assert {one.track_id.tolist()[0] for one in seen[1:]} == {1}
    assert {one.class_id.tolist()[0] for one in seen[1:]} == {0}


def test_two_classes_at_one_place_are_two_objects():
    frames = [detections((100 + i, 80, 60, 40, 0.9, 0), (101 + i, 80, 60, 40, 0.8, 1)) for i in range(30)]
    seen = follow(tracker(), frames)

    assert {tuple(one.track_id.tolist()) for one in seen[1:]} == {(1, 2)}
    assert {tuple(one.class_id.tolist()) for one in seen[1:]} == {(0, 1)}


def test_what_is_seen_in_one_frame_alone_gets_no_number():
    ghosts = [detections((50 + 200 * (i % 3), 50 + 90 * (i % 4), 20, 20)) for i in range(24)]

    assert all(one.track_id.tolist() == [0] for one in follow(tracker(), ghosts))


def test_boxes_without_area_end_nothing():
    seen = follow(tracker(), [detections((100, 80, 0, 0), (300, 80, 40, 40))] * 5)

    assert seen[-1].track_id[1] > 0
    assert np.isfinite(seen[-1].track_id).all()


def test_what_it_says_is_not_changed_by_the_next_frame():
    one = tracker()
    frame = detections((100, 80, 60, 60))
    seen = follow(one, [frame] * 3)
    before = seen[-1].track_id.copy()
    one.reset()

    assert np.array_equal(before, seen[-1].track_id)
