import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.publish.frames import Selection, is_noticeably_different
from edge.types import StreamId
from tests.support.wire_messages import found

EAST, WEST = StreamId("east"), StreamId("west")
SECOND = 1_000_000_000
PARKED = found((100, 100, 200, 200))


def wanted(mode, frames, *, step_ns=SECOND // 30, heartbeat_s=1000.0):
    selection = Selection(mode, heartbeat_s=heartbeat_s)
    return [selection.wants(EAST, frame, now_ns=index * step_ns) for index, frame in enumerate(frames)]


def test_all_takes_every_frame():
    assert wanted("all", [found()] * 3) == [True] * 3


def test_nonempty_takes_frames_with_detections_and_the_first():
    assert wanted("nonempty", [found(), found(), PARKED, PARKED, found()]) == [True, False, True, True, False]


def test_change_takes_a_parked_car_once_and_its_leaving():
    assert wanted("change", [PARKED, PARKED, PARKED, found(), found()]) == [True, False, False, True, False]


def test_slow_drift_adds_up():
    frames = [found((100 + x, 100, 200 + x, 200)) for x in range(0, 40, 2)]

    assert wanted("change", frames).count(True) >= 3


@pytest.mark.parametrize(
    ("then", "now", "is_different"),
    [
        (found(), found(), False),
        (PARKED, found((104, 100, 204, 200)), False),
        (PARKED, found((120, 100, 220, 200)), True),
        (PARKED, found((100, 100, 200, 200), class_id=3), True),
        (PARKED, found((100, 100, 200, 200), (101, 100, 201, 200)), True),
        (found((0, 0, 10, 10), (50, 50, 60, 60)), found((50, 50, 60, 60), (0, 0, 10, 10)), False),
        (found((0, 0, 10, 10), (50, 50, 60, 60)), found((0, 0, 10, 10), (0, 0, 10, 9)), True),
        (found((5, 5, 5, 5)), found((5, 5, 5, 5)), False),
    ],
)
def test_a_difference_is_noticeable_when_a_box_has_no_counterpart(then, now, is_different):
    assert is_noticeably_different(now, then) is is_different
    assert is_noticeably_different(then, now) is is_different


def test_a_heartbeat_comes_in_every_mode():
    for mode in ("all", "nonempty", "change"):
        taken = wanted(mode, [found()] * 91, heartbeat_s=1.0)
        assert taken.count(True) >= 3


def test_streams_do_not_see_each_other():
    selection = Selection("change", heartbeat_s=1000)

    assert selection.wants(EAST, PARKED, now_ns=0)
    assert selection.wants(WEST, PARKED, now_ns=0)
    assert not selection.wants(EAST, PARKED, now_ns=1)


boxes = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.integers(1, 50)), max_size=4
).map(lambda corners: found(*[(x, y, x + w, y + h) for x, y, w, h in corners]))


@given(st.lists(st.tuples(boxes, st.integers(0, SECOND)), min_size=1, max_size=20))
def test_a_consumer_always_has_a_picture_that_is_fresh_and_close(steps):
    selection = Selection("change", heartbeat_s=1.0)
    now_ns, published = 0, None
    for frame, pause_ns in steps:
        now_ns += pause_ns
        if selection.wants(EAST, frame, now_ns=now_ns):
            published = (now_ns, frame)
        assert now_ns - published[0] < SECOND
        assert not is_noticeably_different(frame, published[1])
