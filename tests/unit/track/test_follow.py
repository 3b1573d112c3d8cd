"""From frames to events: the street's truth judges the counts, and gaps, clocks and sizes invent nothing."""

from collections import Counter

import numpy as np
import pytest

from edge.track.bytetrack import ByteTracker
from edge.track.events import Direction, EndReason
from edge.track.follow import Follower, WatchRules
from edge.track.geometry import Line, Zone
from edge.types import ImageSize
from tests.support import street, values
from tests.support.watching import FRAME_NS, header, result, told

WHOLE = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
PARKED = (400, 200, 500, 260)


YARD = Zone(id="yard", polygon=WHOLE)


def follower(*, zones=(YARD,), lines=(), lost_s=1.0):
    rules = WatchRules(zones=zones, lines=lines, anchor="bottom", settle_s=0.3, lost_s=lost_s, classes=4)
    return Follower(ByteTracker(lost_s=lost_s, sure_score=0.5), rules)


def events_of(one, results):
    return [event for each in results for event in one.follow(each)[1]]


def frames(first, count, box=PARKED, **about):
    return [result(first + i, box, **about) for i in range(count)]


@pytest.mark.parametrize("pause_s", [1.5, 60, 86_400])
def test_a_camera_that_was_away_makes_objects_vanish_and_appear_but_never_leave_or_enter(pause_s):
    later = 21 + round(pause_s * 10)
    events = events_of(follower(), frames(1, 20) + frames(later, 20))

    assert told(events) == [("appear", "yard", 2), ("vanish", "yard", 20), ("appear", "yard", later + 1)]
    assert events[1].reason is EndReason.INTERRUPTED


def test_a_short_pause_changes_nothing():
    assert told(events_of(follower(), frames(1, 20) + frames(29, 20))) == [("appear", "yard", 2)]


def test_who_is_away_while_frames_come_is_lost():
    gone = [result(frame) for frame in range(21, 40)]
    events = events_of(follower(), frames(1, 20) + gone)

    assert told(events) == [("appear", "yard", 2), ("vanish", "yard", 20)]
    assert events[1].reason is EndReason.LOST


@pytest.mark.parametrize("step_s", [-3600, -0.2, 3600])
def test_a_step_of_the_wall_clock_is_nothing(step_s):
    back = [result(i, PARKED, captured_at_ns=round(i * FRAME_NS + step_s * 1e9)) for i in range(21, 60)]

    assert told(events_of(follower(), frames(1, 20) + back)) == [("appear", "yard", 2)]


def test_a_step_back_of_the_stream_s_own_time_ends_all():
    again = [result(i, PARKED, pts_ns=(i - 15) * FRAME_NS) for i in range(21, 40)]
    events = events_of(follower(), frames(1, 20) + again)

    assert [event.kind.value for event in events] == ["appear", "vanish", "appear"]
    assert events[1].reason is EndReason.INTERRUPTED


def test_another_size_of_the_picture_ends_all():
    half = [result(i, (200, 100, 250, 130), size=ImageSize(width=500, height=250)) for i in range(21, 40)]
    events = events_of(follower(), frames(1, 20) + half)

    assert [event.kind.value for event in events] == ["appear", "vanish", "appear"]
    assert events[1].reason is EndReason.CHANGED


@pytest.mark.parametrize("every", [1, 2, 4])
def test_the_frame_rate_decides_when_but_not_whether(every):
    path = [result(i, (10 * i, 200, 10 * i + 100, 260)) for i in range(1, 80, every)]
    right = Zone(id="right", polygon=((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0)))
    events = told(events_of(follower(zones=(right,)), path))

    assert [kind for kind, *_ in events] == ["enter"]
    assert 45 <= events[0][2] <= 45 + every  # its middle, 10 i + 50, is at half of 1000 px


def test_an_interruption_is_told_by_hand_too_and_totals_stay():
    gate = Line(id="gate", start=(0.5, 1.0), end=(0.5, 0.0))
    one = follower(lines=(gate,))
    events_of(one, [result(i, (10 * i, 200, 10 * i + 100, 260)) for i in range(1, 80)])

    assert told(one.interrupt(EndReason.STOPPED)) == [("vanish", "yard", 79)]
    assert one.interrupt(EndReason.STOPPED) == []
    assert one.occupancy().lines["gate"].forward == {0: 1}
    assert one.occupancy().objects == {}


LINES_AT = (0.15, 0.3, 0.5, 0.7, 0.85)


def street_counts(seed, every=1, **quality):
    """Return how often each line was crossed each way, by the events of every so-manieth frame."""
    rng = np.random.default_rng(seed)
    lines = [Line(id=str(x), start=(x, 1.0), end=(x, 0.0)) for x in LINES_AT]
    one = follower(zones=(), lines=lines, lost_s=max(1.0, every / 5))
    events = []
    for index, truth in list(enumerate(street.truths(seed)))[::every]:
        found, _ = street.as_detected(truth, rng, **quality)
        about = header(index + 1, pts_ns=(index + 1) * street.FRAME_NS, size=street.SIZE)
        events += one.follow(values.result(about, found))[1]
    events += one.interrupt(EndReason.STOPPED)
    return Counter((event.line, 1 if event.direction is Direction.FORWARD else -1) for event in events)


@pytest.mark.slow(reason="a street of many minutes")
@pytest.mark.parametrize(
    ("quality", "share"), [({}, 0.03), ({"jitter": 0.06, "missed": 0.25}, 0.06)], ids=["usual", "poor"]
)
def test_counts_over_lines_are_those_of_the_street(quality, share):
    wrong = total = 0
    for seed in street.SEEDS:
        counted = street_counts(seed, **quality)
        for x in LINES_AT:
            truth = Counter(direction for _, direction in street.true_crossings(seed, x))
            wrong += sum(abs(truth[way] - counted[str(x), way]) for way in (1, -1))
            total += sum(truth.values())

    assert total > 600
    assert wrong <= share * total


@pytest.mark.slow(reason="seven streets at four rates")
@pytest.mark.parametrize(("every", "least"), [(1, 0.99), (3, 0.98), (5, 0.96), (7, 0.92)], ids=lambda one: str(one))
def test_where_frames_are_rare_most_of_the_street_is_counted(every, least):
    """15, 5, 3 and 2.1 fps; people stand behind each other here, and two of five detections begin nothing. Lines near
    the edge are left out: who is fast is seen once on the other side."""
    right, invented, total = counted_inside(every)

    assert right >= least * total
    assert invented <= 0.01 * total


@pytest.mark.slow(reason="seven streets at two rates")
@pytest.mark.parametrize(("every", "least"), [(3, 0.97), (6, 0.95)], ids=lambda one: str(one))
def test_where_a_detector_sees_what_is_not_there_few_crossings_are_invented(every, least):
    """5 and 2.5 fps. Were unsure boxes to begin objects, it would be 45."""
    right, invented, total = counted_inside(every, ghosts=6.0)

    assert right >= least * total
    assert invented <= 0.05 * total


def counted_inside(every, **quality):
    """Return crossings that were counted, invented, and true ones, over the lines that are not near the edge."""
    right = total = invented = 0
    for seed in street.SEEDS:
        counted = street_counts(seed, every, **quality)
        for x in LINES_AT[1:-1]:
            truth = Counter((str(x), direction) for _, direction in street.true_crossings(seed, x))
            here = Counter({key: count for key, count in counted.items() if key[0] == str(x)})
            right += (truth & here).total()
            invented += (here - truth).total()
            total += truth.total()
    return right, invented, total
