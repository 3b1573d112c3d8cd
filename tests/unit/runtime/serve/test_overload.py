"""When a device says that it cannot keep up: made-up accounts of a run, second by second."""

import re

import pytest

from edge.media.camera import StreamStatus
from edge.publish.messages import StreamStateMessage
from edge.runtime.pipeline.shares import Terms
from edge.runtime.serve.overload import Overload
from edge.runtime.serve.streams import StreamStates
from edge.types import DropReason, StreamId, StreamState
from tests.support.logged import logged
from tests.support.service_parts import Kept, Run

OF_A_STREAM = "overload: not every frame is inferred"


@pytest.fixture
def run():
    run = Run()
    run.told_of_streams = []
    run.watched_by(Overload(run.told.append, lambda *one: run.told_of_streams.append(one), run))
    return run


@pytest.mark.parametrize("reason", [DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE])
def test_half_a_minute_of_lost_frames_is_told_and_only_the_log_has_its_figures(run, caplog, reason):
    run.lost_as = reason
    run.seconds(29, inferred=(20, 20), lost=(4, 6))
    assert run.told == []

    run.seconds(1, inferred=(20, 20), lost=(4, 6))

    (told,) = run.told
    assert not re.search(r"\d", told), "it stands while the figures change"
    assert "overloaded wanted_fps=50.0 inferred_fps=40.0 worst=s1" in logged(caplog)


@pytest.mark.parametrize("reason", [DropReason.MAX_FPS, DropReason.DAMAGED, DropReason.STOPPED])
def test_what_is_dropped_for_other_reasons_is_no_overload(run, reason):
    run.lost_as = reason

    run.seconds(100, inferred=(20, 20), lost=(20, 20))

    assert run.told == []


def test_a_stream_is_told_of_by_itself_though_the_machine_as_a_whole_keeps_up(run, caplog):
    """In windows of ten seconds 0.2 of 3 fps are few frames: a rate, not a count, is judged."""
    for _ in range(5):
        run.seconds(5, inferred=(60, 0), lost=(0, 3))
        run.seconds(1, inferred=(60, 1), lost=(0, 2))
    assert run.told_of_streams == [("s1", OF_A_STREAM)]
    assert run.told == []
    assert "stream-overloaded stream=s1 wanted_fps=3.00 inferred_fps=0.20" in logged(caplog)

    run.seconds(30, inferred=(60, 3), lost=(0, 0))
    assert run.told_of_streams[1:] == [("s1", None)]


def test_a_stream_that_reloads_take_out_and_bring_back_is_told_of_anew(run):
    run.seconds(30, inferred=(60, 5), lost=(0, 20))
    run.away = {"s1"}
    run.seconds(10, inferred=(60, 0), lost=(0, 0))
    run.away = ()
    run.seconds(40, inferred=(60, 5), lost=(0, 20))

    assert run.told_of_streams == [("s1", OF_A_STREAM)] * 2


def test_a_burst_is_no_overload(run):
    for _ in range(5):
        run.seconds(20, inferred=(20, 20), lost=(10, 0))
        run.seconds(10, inferred=(20, 20), lost=(0, 0))

    assert run.told == []


def test_it_is_over_when_hardly_any_are_lost_for_half_a_minute_and_not_before(run):
    run.seconds(30, inferred=(20, 20), lost=(10, 0))
    assert len(run.told) == 1

    for _ in range(5):
        run.seconds(20, inferred=(20, 20), lost=(0, 1))
        run.seconds(10, inferred=(20, 20), lost=(2, 1))  # between the two bounds: it stays as it is
    assert len(run.told) == 1

    run.seconds(30, inferred=(20, 20), lost=(0, 1))

    assert run.told[1:] == [None]


def test_a_run_without_frames_is_no_overload(run):
    run.seconds(100, inferred=(0, 0), lost=(0, 0))

    assert run.told == []


def test_two_things_that_are_wrong_are_told_beside_each_other_each_as_it_is_now():
    kept = Kept()
    states = StreamStates([StreamId("a")], kept, device="dev")
    states.alarm("throttled by heat")
    states.alarm("frame rates are capped: a:2.0", about="relief")
    states.alarm("frame rates are capped: a:3.0", about="relief")
    states.alarm("frame rates are capped: a:3.0", about="relief")
    states.alarm(None)
    states.alarm(None, about="relief")

    assert kept.states() == [
        ("degraded", "throttled by heat"),
        ("degraded", "throttled by heat; frame rates are capped: a:2.0"),
        ("degraded", "throttled by heat; frame rates are capped: a:3.0"),
        ("degraded", "frame rates are capped: a:3.0"),
        ("online", None),
    ]


def test_the_reason_names_the_cameras_that_are_down_now():
    kept = Kept()
    states = StreamStates([StreamId("a"), StreamId("b")], kept, device="dev")
    states.fail(StreamId("a"), "gone")
    states.fail(StreamId("b"), "gone")
    states.alarm("throttled by heat")
    states.change(StreamStatus(stream=StreamId("a"), state=StreamState.UP, reason=None, reconnects=1))

    assert kept.states() == [
        ("degraded", "down: a"),
        ("degraded", "down: a, b"),
        ("degraded", "down: a, b; throttled by heat"),
        ("degraded", "down: b; throttled by heat"),
    ]
    assert states.device_state == ("degraded", "down: b; throttled by heat")


def test_a_stream_that_was_removed_before_its_end_was_told_is_not_told_as_ended():
    kept, east = Kept(), StreamId("east")
    states = StreamStates([east], kept, device="dev")
    states.change(StreamStatus(stream=east, state=StreamState.ENDED, reason=None, reconnects=0))
    assert states.ending == (east,)

    states.remove(east)
    states.finish(east)

    assert states.ending == ()
    assert kept.of(StreamStateMessage) == []


def test_a_stream_that_is_up_and_not_inferred_is_degraded_until_it_is():
    kept = Kept()
    east = StreamId("east")
    states = StreamStates([east], kept, device="dev")

    def change(state, reason="frames arrive"):
        states.change(StreamStatus(stream=east, state=state, reason=reason, reconnects=0))

    change(StreamState.UP)
    states.overload(east, OF_A_STREAM)
    change(StreamState.DOWN, "no frame for 3 s")
    change(StreamState.UP)
    states.overload(east, None)
    states.overload(StreamId("gone"), OF_A_STREAM)

    assert [(one.state, one.reason) for one in kept.of(StreamStateMessage)] == [
        ("up", None),
        ("degraded", OF_A_STREAM),
        ("down", "no frame for 3 s"),
        ("degraded", OF_A_STREAM),
        ("up", None),
    ]
    assert states.statuses()[east].state is StreamState.UP, "for health files and trials: its frames come"


def test_a_stream_wants_no_more_than_its_own_limit_lets_through(run, caplog):
    """Of 25 frames per second under a limit of 12, one decoder gave out 5 and saw 20 come too late."""
    run.terms = {StreamId("s1"): Terms(max_fps=12)}

    run.seconds(30, inferred=(20, 5), lost=(0, 20))

    assert "overloaded wanted_fps=32.0 inferred_fps=25.0 worst=s1" in logged(caplog)
    assert "stream-overloaded stream=s1 wanted_fps=12.00 inferred_fps=5.00" in logged(caplog)


def test_what_comes_too_late_and_its_limit_would_have_let_go_is_no_overload(run):
    run.terms = {StreamId("s1"): Terms(max_fps=12)}

    run.seconds(100, inferred=(20, 12), lost=(0, 13))

    assert run.told == run.told_of_streams == []
