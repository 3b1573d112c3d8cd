"""Events of zones and lines: hand-worked ways, and what holds for all ways."""

import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.track.events import EndReason
from edge.track.follow import Watch
from edge.track.geometry import Line, Zone
from tests.support.watching import seen, told, walk

# A loaded machine is slow, we are not.
property_test = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

RIGHT = ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0))
OUT, IN = (0.2, 0.5), (0.8, 0.5)


def watch(*, zones=None, lines=(), settle_s=0.3, **zone):
    zones = [Zone(id="yard", polygon=RIGHT, **zone)] if zones is None else zones
    return Watch(zones, lines, settle_s=settle_s, classes=3)


def line(**more):
    return watch(zones=[], lines=[Line(id="gate", start=(0.5, 1.0), end=(0.5, 0.0), **more)])


def test_who_comes_and_goes_enters_and_leaves_and_it_is_told_when_it_took_place():
    events = walk(watch(), [OUT] * 3 + [IN] * 8 + [OUT] * 6)

    assert told(events) == [("enter", "yard", 4), ("leave", "yard", 12)]
    assert [event.duration_s for event in events] == [None, pytest.approx(0.8)]


def test_it_is_told_as_soon_as_it_has_held_for_so_long():
    one = watch(settle_s=0.3)
    walk(one, [OUT, IN, IN, IN])

    assert told(one.see(seen(5, [IN]))) == [("enter", "yard", 2)]


def test_who_is_first_seen_inside_appears_and_who_is_last_seen_inside_vanishes():
    one = watch()

    assert told(walk(one, [IN] * 6)) == [("appear", "yard", 1)]
    (event,) = one.end([1], EndReason.LOST)
    assert told([event]) == [("vanish", "yard", 6)]
    assert (event.reason, event.duration_s) == (EndReason.LOST, pytest.approx(0.5))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_box_that_trembles_on_the_border_is_no_event(steps):
    inside, outside = [(0.501, 0.5)] * steps, [(0.499, 0.5)] * steps

    assert walk(watch(), [OUT] * 4 + (inside + outside) * 10 + [OUT] * 6) == []
    assert told(walk(watch(), [IN] * 4 + (outside + inside) * 10 + [IN] * 6)) == [("appear", "yard", 1)]


STANDING = [(0.505, 0.5)] * 8 + [(0.497, 0.5)] * 8  # by 8 px for 0.8 s, longer than it takes to settle


@pytest.mark.parametrize(("place", "once"), [(watch, "enter yard"), (line, "cross gate forward")])
def test_who_stands_where_the_picture_is_divided_is_counted_once_and_again_after_a_fifth_of_the_box(place, once):
    events = told(walk(place(), [OUT] * 4 + STANDING * 10, side_px=50))

    assert [f"{kind} {where}" for kind, where, _ in events] == [once]
    assert len(walk(place(), [OUT] * 4 + STANDING * 10, side_px=30)) == 20  # it walks: 8 of 30 px


def test_a_way_in_small_steps_is_a_crossing_within_a_fifth_of_the_box():
    events = told(walk(line(), [(x / 1000, 0.5) for x in range(440, 560)], side_px=50))

    ((*what, frame),) = events
    assert what == ["cross", "gate forward"]
    assert 500 <= 440 + frame - 1 <= 510


def test_who_is_not_seen_does_not_settle():
    one = watch()

    assert walk(one, [OUT, IN] + [None] * 10) == []
    assert told(walk(one, [None] * 20 + [IN] * 1)) == [("enter", "yard", 2)]


def test_who_was_only_just_inside_when_last_seen_was_no_visitor():
    one = watch()

    assert walk(one, [OUT] * 5 + [IN] * 2) == []
    assert one.end([1], EndReason.LOST) == []


def test_who_was_outside_when_last_seen_has_left():
    one = watch()
    walk(one, [OUT] * 5 + [IN] * 6 + [OUT])

    assert told(one.end([1], EndReason.INTERRUPTED)) == [("leave", "yard", 12)]


def test_a_dwell_is_told_once_per_visit():
    path = [OUT] * 2 + [IN] * 30 + [OUT] * 5 + [IN] * 30

    events = told(walk(watch(dwell_s=1.0), path))

    assert events == [
        ("enter", "yard", 3),
        ("dwell", "yard", 13),
        ("leave", "yard", 33),
        ("enter", "yard", 38),
        ("dwell", "yard", 48),
    ]


def test_nobody_dwells_who_left_in_time():
    events = told(walk(watch(dwell_s=1.0), [IN] * 9 + [OUT] * 20))

    assert [kind for kind, *_ in events] == ["appear", "leave"]


def test_classes_that_are_not_wanted_do_nothing():
    one = watch(zones=[Zone(id="yard", polygon=RIGHT, class_ids=frozenset({1}))])

    assert walk(one, [OUT] * 5 + [IN] * 5, class_id=0) == []
    assert told(walk(one, [OUT] * 5 + [IN] * 5, class_id=1)) == [("enter", "yard", 6)]


def test_a_visitor_stays_one_when_its_class_is_seen_differently_later():
    one = watch(zones=[Zone(id="yard", polygon=RIGHT, class_ids=frozenset({1}))])
    walk(one, [IN] * 6, class_id=1)

    assert walk(one, [None] * 6 + [IN] * 9, class_id=0) == []
    assert one.occupancy().zones == {"yard": {1: 1}}


def test_a_line_is_crossed_in_a_direction():
    # Drawn upwards: its left hand is the left of the picture, so forward is to the right.
    events = walk(line(), [OUT] * 5 + [IN] * 5 + [OUT] * 5)

    assert told(events) == [("cross", "gate forward", 6), ("cross", "gate backward", 11)]


def test_there_and_back_at_once_is_no_crossing():
    assert walk(line(), [OUT] * 5 + [IN, IN, OUT] * 10 + [OUT] * 5) == []


def test_who_passes_beside_a_line_does_not_cross_it():
    short = Line(id="gate", start=(0.5, 0.4), end=(0.5, 0.0))

    assert walk(watch(zones=[], lines=[short]), [OUT] * 5 + [IN] * 5) == []


def test_who_is_last_seen_behind_a_line_has_crossed_it():
    one = line()
    walk(one, [OUT] * 5 + [IN])

    assert told(one.end([1], EndReason.LOST)) == [("cross", "gate forward", 6)]


def test_a_line_counts_the_classes_it_is_for():
    one = line(class_ids=frozenset({2}))

    assert walk(one, [OUT] * 5 + [IN] * 5, class_id=1) == []
    assert one.occupancy().lines["gate"].forward == {}


def test_occupancy_is_who_is_there_and_what_has_passed():
    one = watch(lines=[Line(id="gate", start=(0.5, 1.0), end=(0.5, 0.0))])
    for frame in range(1, 12):
        one.see(seen(frame, [OUT if frame < 4 else IN, IN, OUT]))

    now = one.occupancy()
    assert (now.objects, now.zones) == ({0: 3}, {"yard": {0: 2}})
    assert (now.lines["gate"].forward, now.lines["gate"].backward) == ({0: 1}, {})
    before = one.version
    one.end([1, 2], EndReason.LOST)
    assert one.occupancy().zones == {"yard": {}}
    assert one.version > before


SPOT = st.tuples(st.integers(1, 31), st.integers(1, 31)).map(lambda spot: (spot[0] / 32, spot[1] / 32))
WAY = st.lists(st.one_of(st.none(), SPOT), max_size=20)


@property_test
@given(st.lists(WAY, min_size=1, max_size=3), st.sampled_from([0.0, 0.1, 0.3]))
def test_enter_and_appear_are_leave_and_vanish_and_those_who_are_inside(ways, settle_s):
    one = watch(settle_s=settle_s, dwell_s=0.5)
    events, balance = [], Counter()
    for frame in range(1, 21):
        found = one.see(seen(frame, [way[frame - 1] if frame <= len(way) else None for way in ways]))
        events += found
        for event in found:
            balance[event.kind.value] += 1
        inside = sum(one.occupancy().zones["yard"].values())
        assert balance["enter"] + balance["appear"] == balance["leave"] + balance["vanish"] + inside
    for event in one.end(range(1, len(ways) + 1), EndReason.STOPPED):
        balance[event.kind.value] += 1

    assert balance["enter"] + balance["appear"] == balance["leave"] + balance["vanish"]
    assert sum(one.occupancy().objects.values()) == 0


@property_test
@given(st.lists(SPOT, min_size=1, max_size=25), st.sampled_from([0.0, 0.1, 0.3]))
def test_crossings_forward_less_backward_are_where_a_way_began_and_ended(way, settle_s):
    one = watch(zones=[], lines=[Line(id="gate", start=(0.5, 2.0), end=(0.5, -1.0))], settle_s=settle_s)
    counts = Counter(event.direction.value for event in walk(one, way) + one.end([1], EndReason.LOST))

    assert counts["forward"] - counts["backward"] == (way[-1][0] >= 0.5) - (way[0][0] >= 0.5)


@property_test
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 4))
def test_events_follow_each_other_no_faster_than_they_settle(inside, settle_frames):
    one = watch(settle_s=settle_frames / 10)
    frames = [event.sighting.header.frame for event in walk(one, [IN if each else OUT for each in inside])]

    assert all(later - earlier >= max(1, settle_frames) for earlier, later in itertools.pairwise(frames))
