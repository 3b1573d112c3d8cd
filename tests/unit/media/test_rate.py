import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import EndOfStream
from edge.media.camera import Camera
from edge.media.rate import RateLimit, StreamTime
from edge.types import DropReason, StreamId
from tests.support.clips import CANVAS, numbered_pictures
from tests.support.service_parts import RecordedSource


def kept(times_s: list[float], max_fps: float) -> list[float]:
    limit = RateLimit(max_fps)
    return [at for at in times_s if limit.admits(round(at * 1e9))]


@pytest.mark.parametrize(
    ("fps", "max_fps", "expected"),
    [(30, 15, 1500), (30, 7.5, 750), (30, 0.5, 50), (25, 15, 1500), (30, 29, 2900), (15, 15, 1500), (10, 30, 1000)],
)
def test_rate_is_exact_over_a_hundred_seconds(fps, max_fps, expected):
    times = [i / fps for i in range(100 * fps)]

    assert abs(len(kept(times, max_fps)) - expected) <= 1


def test_even_limit_keeps_even_gaps():
    assert kept([i / 30 for i in range(12)], 10) == [i / 30 for i in (0, 3, 6, 9)]


def test_camera_at_the_limit_loses_nothing_by_its_jitter():
    jitter = random.Random(7)
    times = [i / 15 + jitter.uniform(-0.008, 0.008) for i in range(1, 1500)]

    assert len(kept(times, 15)) >= 1490


def test_pause_is_not_made_up_for_by_a_burst():
    times = [0.0, *(10 + i / 30 for i in range(30))]

    assert len(kept(times, 5)) <= 1 + 6


@pytest.mark.parametrize(
    "fps_and_limit", [(15, 10), (12.5, 10), (30, 25), (20, 12), (20, 7.5), (30, 20), (12, 8), (60, 40)]
)
@pytest.mark.parametrize("unseen", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("lost", [[], [100], [101, 300]])
def test_a_second_limit_behind_the_first_keeps_the_rate_whatever_was_lost_between_them(fps_and_limit, unseen, lost):
    fps, max_fps = fps_and_limit
    times = kept([i / fps for i in range(round(60 * fps))], max_fps)
    times = [at for i, at in enumerate(times) if i >= unseen and i not in lost]

    assert len(kept(times, max_fps)) >= 60 * max_fps - 12


def test_times_that_begin_anew_begin_a_new_reckoning():
    assert kept([100.0, 0.0, 0.01, 1.0], 1) == [100.0, 0.0, 1.0]


@given(st.lists(st.floats(0.001, 0.5), min_size=2, max_size=200), st.floats(0.2, 60))
def test_rate_is_never_exceeded_in_the_long_run(gaps, max_fps):
    times = [sum(gaps[:i]) for i in range(len(gaps))]

    assert len(kept(times, max_fps)) <= (times[-1] - times[0]) * max_fps + 2.5


def test_a_limited_camera_counts_what_it_lets_go():
    pictures = numbered_pictures(30, width=32, height=32)
    recorded = RecordedSource(StreamId("a"), pictures, preprocess=CANVAS, fps=30)
    source = Camera(recorded.stream, lambda: recorded, is_live=False, is_endless=False, stall_s=3.0, max_fps=10)
    source.open()
    frames = [source.read(1.0).header.frame for _ in range(10)]
    with pytest.raises(EndOfStream):
        source.read(1.0)
    source.close()

    assert frames == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
    assert source.counts().decoded == 30
    assert source.counts().dropped == {DropReason.MAX_FPS: 20}


@pytest.mark.parametrize(
    ("frames_s", "arrivals_s", "expected_s"),
    [
        ((5, 6, 7, 8, 9), (0, 1, 4, 4, 4), (5, 6, 7, 8, 9)),  # a hiccup
        ((5, 6, 7, 8, 9), (4, 4, 4, 5, 6), (5, 6, 7, 8, 9)),  # the same at the start
        ((5, 5, 5, 5, 6), (0, 1, 2, 4, 5), (5, 6, 7, 9, 10)),
        ((5, 5, 7, 7, 9, 9), (0, 1, 2, 3, 4, 5), (5, 6, 7, 8, 9, 10)),
        ((5, 6, 2, 3, 4), (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
        ((5, 6, 3600, 3601), (0, 1, 2, 3), (5, 6, 7, 8)),
    ],
)
def test_time_of_a_stream_is_that_of_its_frames_or_where_that_cannot_be_of_arrival(frames_s, arrivals_s, expected_s):
    times = StreamTime()

    found = [times.of(at * 10**9, arrived_ns=came * 10**9) for at, came in zip(frames_s, arrivals_s, strict=True)]

    assert [time_ns / 1e9 for time_ns, _ in found] == list(expected_s)


def test_time_of_a_stream_goes_on_though_nothing_does():
    times = StreamTime()

    assert [times.of(5, arrived_ns=7) for _ in range(3)] == [(5, True), (6, False), (7, False)]


@pytest.mark.parametrize("max_fps", [0.0, -1.0])
def test_a_limit_that_would_let_nothing_through_is_refused_where_it_is_made(max_fps):
    with pytest.raises(ValueError, match="max_fps is positive"):
        RateLimit(max_fps)
