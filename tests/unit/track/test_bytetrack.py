"""The street's own identities judge the tracker, beside the library's ByteTrack on the same detections.

The assignment has the largest sum there is: held against all ways where there are few, and a proof where many.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge.track.bytetrack import ByteTracker, Motion, assign
from tests.support.library_tracker import FRAME_NS, LibraryTracker, detections, follow
from tests.support.street import SEEDS, identity_scores

POOR = {"jitter": 0.06, "missed": 0.25}


def tracker(**kwargs):
    return ByteTracker(**{"lost_s": 1.0, "sure_score": 0.5} | kwargs)


def of_all_streets(make, **quality):
    scores = [identity_scores(make(lost_s=1.0, sure_score=0.5), seed, **quality) for seed in SEEDS]
    total = sum(count for *_, count in scores)
    return sum(switches for switches, *_ in scores), sum(share * count for _, share, count in scores) / total


@pytest.mark.slow(reason="a street of many minutes")
def test_objects_of_the_street_keep_their_numbers():
    switches, share = of_all_streets(ByteTracker)  # of 25,000 detections, a tenth missed, boxes 3 % off

    assert switches <= 5
    assert share > 0.9


@pytest.mark.parametrize("quality", [{}, POOR], ids=["usual", "poor"])
@pytest.mark.slow(reason="a long street by two trackers")
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


UNSURE, SURE = 0.4, 0.9
BEHIND = [detections((10 * i, 80, 40, 40, UNSURE)) for i in range(1, 6)]  # 10 px to the right in each frame
FOUND = [detections((60, 80, 40, 40, SURE)), detections((70, 80, 40, 40, UNSURE))]


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ([], 40),
        (BEHIND[4:], 30),
        (BEHIND[3:], 20),
        ([*BEHIND[2:4], detections()], 10),
        (BEHIND, 10),
        ([detections((50, 180, 40, 40, UNSURE))], 40),
        ([detections((95, 80, 40, 40, UNSURE))], 40),
    ],
    ids=["alone", "one", "two", "missed once", "three frames back at most", "beside", "ahead"],
)
def test_an_object_began_where_unsure_detections_lead_back_to(before, left):
    *_, last = follow(tracker(), [*before, *FOUND])

    assert last.track_id.tolist() == [1]
    assert [(number, box.tolist()) for number, box in last.began.items()] == [(1, [left, 60, left + 40, 100])]


@pytest.mark.parametrize(("missed", "number"), [(0, 1), (1, 1), (2, 0)])
def test_an_unsure_detection_continues_an_object_that_one_frame_missed(missed, number):
    frames = [detections((100, 80, 40, 40))] * 4 + [detections()] * missed + [detections((100, 80, 40, 40, UNSURE))]

    assert follow(tracker(), frames)[-1].track_id.tolist() == [number]


def test_a_box_that_changed_its_size_keeps_it_while_it_is_not_seen():
    motion = Motion()
    motion.add(np.array([[100.0, 100, 20, 50]]))
    motion.predict(1 / 3)
    motion.correct(np.array([0]), np.array([[112.0, 100, 10, 50]]))  # the legs are together

    # Its size is 35. Variance 3.5^2 + 10 * 1.75^2 = 42.875 against 1.75^2 = 3.0625 of what is seen: 14 / 15 of the way.
    assert motion.state[0, 0, 2] == pytest.approx(20 - 10 * 14 / 15)
    motion.predict(1.0)
    assert motion.state[0, 0, 2] == pytest.approx(20 - 10 * 14 / 15)
    assert motion.state[0, 0, 0] > 140


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


# Few different values, so that ties and equal sums are common.
WEIGHTS = arrays(
    np.float32,
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    elements=st.sampled_from([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0]),
)


def gain(weight, pairs, minimum):
    return sum(float(weight[row, column]) - minimum for row, column in pairs)


def largest(weight, minimum):
    """The best of every way to give the rows of the longer side to those of the shorter, or to none of them."""
    gains = np.maximum(weight.astype(np.float64) - minimum, 0)
    few, many = sorted(gains.shape)
    gains = gains if gains.shape == (few, many) else gains.T
    best = {0: 0.0}  # by the columns that are taken
    for row in gains:
        found = dict(best)
        for taken, total in best.items():
            for column in range(many):
                if not taken & 1 << column:
                    now = taken | 1 << column
                    found[now] = max(found.get(now, 0.0), total + row[column])
        best = found
    return max(best.values())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_no_other_pairs_have_a_larger_sum(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert gain(weight, pairs, minimum) == pytest.approx(largest(weight, minimum))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(WEIGHTS, st.sampled_from([0.0, 0.25, 0.5]))
def test_nobody_is_in_two_pairs_and_no_pair_is_too_weak(weight, minimum):
    pairs = assign(weight, minimum=minimum)

    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(weight[pair] > minimum for pair in pairs)


def test_a_dense_crowd_is_assigned_exactly():
    """No exchange in a circle gains: by Bellman and Ford, such a circle is there unless the sum is the largest."""
    weight, minimum = np.random.default_rng(0).random((60, 70)).astype(np.float32), 0.1
    rows, columns = weight.shape
    gains = np.zeros((rows, columns + rows))  # going without is a pair with a column of one's own, of no gain
    gains[:, :columns] = weight.astype(np.float64) - minimum
    of_row = dict(assign(weight, minimum=minimum))
    place = np.array([of_row.get(row, columns + row) for row in range(rows)])
    # Row r takes the column of row s, and s another: what that gains. A free column is row `rows`, which gives it away.
    free = np.setdiff1d(np.arange(columns + rows), place)
    gained = np.zeros((rows + 1, rows + 1))
    gained[:rows, :rows] = gains[:, place] - gains[np.arange(rows), place][:, None]
    gained[:rows, rows] = gains[:, free].max(axis=1) - gains[np.arange(rows), place]
    most = np.zeros(rows + 1)
    for _ in range(rows + 1):
        most = np.maximum(most, (gained + most[None, :]).max(axis=1))
    assert np.allclose(most, np.maximum(most, (gained + most[None, :]).max(axis=1)), atol=1e-9)
