"""When a device says that it cannot keep up: made-up accounts of a run, second by second."""

import dataclasses

import pytest

from edge.runtime.serve.overload import Overload
from edge.runtime.serve.stream_states import StreamStates
from edge.types import DropReason, StreamId
from tests.unit.runtime.serve.test_watchdog import UP, account


class Run:
    """Two streams, whose frames per second are given second by second."""

    def __init__(self):
        self.told = []
        self._overload = Overload(self.told.append)
        self._second = 0
        self._streams = [[0, 0], [0, 0]]  # inferred, lost
        self.reason = DropReason.SUPERSEDED
        self._tick()

    def seconds(self, count, *, inferred, lost):
        for _ in range(count):
            self._second += 1
            for stream, more_inferred, more_lost in zip(self._streams, inferred, lost, strict=True):
                stream[0] += more_inferred
                stream[1] += more_lost
            self._tick()

    def _tick(self):
        report = account(turns=1, batches=1, streams=[(UP, good + bad, good, 0) for good, bad in self._streams])
        streams = tuple(
            dataclasses.replace(one, dropped={self.reason: bad})
            for one, (_, bad) in zip(report.streams, self._streams, strict=True)
        )
        times = dataclasses.replace(report.times, elapsed_s=float(self._second))
        self._overload.tick(dataclasses.replace(report, streams=streams, times=times))


@pytest.mark.parametrize("reason", [DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE])
def test_half_a_minute_of_lost_frames_is_told_with_figures(caplog, reason):
    run = Run()
    run.reason = reason
    run.seconds(29, inferred=(20, 20), lost=(4, 6))
    assert run.told == []

    run.seconds(1, inferred=(20, 20), lost=(4, 6))

    assert run.told == ["cannot keep up: 40.0 of 50.0 fps are inferred; s1 loses 6.0"]
    assert "the machine cannot keep up wanted_fps=50.0 inferred_fps=40.0 worst=s1" in caplog.text


@pytest.mark.parametrize("reason", [DropReason.MAX_FPS, DropReason.DAMAGED, DropReason.STOPPED])
def test_what_is_dropped_for_other_reasons_is_no_overload(reason):
    run = Run()
    run.reason = reason

    run.seconds(100, inferred=(20, 20), lost=(20, 20))

    assert run.told == []


def test_a_burst_is_no_overload():
    run = Run()
    for _ in range(5):
        run.seconds(20, inferred=(20, 20), lost=(10, 0))
        run.seconds(10, inferred=(20, 20), lost=(0, 0))

    assert run.told == []


def test_it_is_over_when_hardly_any_are_lost_for_half_a_minute_and_not_before():
    run = Run()
    run.seconds(30, inferred=(20, 20), lost=(10, 0))
    assert len(run.told) == 1

    for _ in range(5):
        run.seconds(20, inferred=(20, 20), lost=(0, 1))
        run.seconds(10, inferred=(20, 20), lost=(2, 1))  # between the two bounds: it stays as it is
    assert len(run.told) == 1

    run.seconds(30, inferred=(20, 20), lost=(0, 1))

    assert run.told[1:] == [None]


def test_a_run_without_frames_is_no_overload():
    run = Run()

    run.seconds(100, inferred=(0, 0), lost=(0, 0))

    assert run.told == []


def test_two_things_that_are_wrong_are_told_beside_each_other():
    published = []
    states = StreamStates([StreamId("a")], Collecting(published), device="dev")
    states.alarm("throttled by heat")
    states.alarm("cannot keep up: 1 of 2 fps", about="overload")
    states.alarm("cannot keep up: 1 of 3 fps", about="overload")
    states.alarm(None)
    states.alarm(None, about="overload")

    assert [(one.state, one.reason) for one in published] == [
        ("degraded", "throttled by heat"),
        ("degraded", "throttled by heat; cannot keep up: 1 of 2 fps"),
        ("degraded", "cannot keep up: 1 of 3 fps"),
        ("online", None),
    ]


class Collecting:
    def __init__(self, published):
        self.publish = published.append
