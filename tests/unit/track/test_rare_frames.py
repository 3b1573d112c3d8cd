"""Crossings where frames are rare, against exact truth (tests/support/crossings.py) and the library's ByteTrack."""

import pytest

from edge.track.bytetrack import ByteTracker
from edge.track.follow import Follower, WatchRules
from tests.support.crossings import OBJECTS, count_all
from tests.support.library_tracker import LibraryTracker

SEEDS = range(300, 306)
TRUE = OBJECTS * len(SEEDS)
LEAST = {5: 0.98, 3: 0.9, 2: 0.8}
OFTEN = [pytest.param(fps, marks=pytest.mark.slow(reason="thousands of frames")) for fps in (30, 15, 10)]
KINDS = pytest.mark.parametrize("kind", ["person", "car"])


@KINDS
@pytest.mark.parametrize("fps", [5, 3, 2, *OFTEN])
def test_who_goes_over_a_line_is_counted_in_the_right_direction(kind, fps):
    counted = count_all(ByteTracker, kind, fps, SEEDS)

    assert counted.right >= LEAST.get(fps, 1.0) * TRUE
    assert counted.invented <= (fps < 5)


@KINDS
@pytest.mark.parametrize("fps", [5, 3, 2])
def test_at_few_frames_no_fewer_are_counted_than_by_the_library(kind, fps):
    if lacking := LibraryTracker.lacking():
        pytest.skip(lacking)

    ours, theirs = (count_all(make, kind, fps, SEEDS[:2]) for make in (ByteTracker, LibraryTracker))

    assert ours.right >= theirs.right
    assert ours.switches <= theirs.switches or ours.right > 1.1 * theirs.right


# What it was when boxes were not grown, of 90 people in crowds; then 29 of them were counted at 3 fps, and 6 at 2.
SWITCHES_BEFORE = {(30, 15, 10): 61, (5,): 26, (3,): 73, (2,): 86}


@pytest.mark.parametrize(
    "rates", [(5,), (3,), (2,), pytest.param((30, 15, 10), marks=pytest.mark.slow(reason="thousands of frames"))]
)
def test_in_a_crowd_numbers_are_exchanged_no_more_often_than_with_boxes_as_they_are(rates):
    counted = {fps: count_all(ByteTracker, "person", fps, SEEDS[:3], every_s=0.7) for fps in rates}

    assert sum(one.switches for one in counted.values()) <= SWITCHES_BEFORE[rates]
    assert all(one.right >= LEAST.get(fps, 1.0) * OBJECTS * 3 for fps, one in counted.items())


@pytest.mark.parametrize(("fps", "lost_s", "fits"), [(2, 1.5, True), (2, 1.0, False), (1.9, 9, False), (3, 1.0, True)])
def test_a_rate_has_to_fit_to_how_long_an_object_may_be_unseen(fps, lost_s, fits):
    rules = WatchRules(zones=(), lines=(), anchor="centre", settle_s=0.3, lost_s=lost_s, classes=1)

    assert (Follower(ByteTracker(lost_s=lost_s, sure_score=0.5), rules).lack_at(fps) is None) is fits
