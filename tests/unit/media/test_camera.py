import logging
import threading
import time
from collections.abc import Callable

import pytest

from edge.errors import EndOfStream, MissingDependencyError, SourceError
from edge.media import probe
from edge.media.camera import Camera, CameraPhase
from edge.media.probe import CameraBackoff, ProbeWatch
from edge.media.threads import has_stuck_threads, stuck_streams
from edge.types import DropReason, SourceCounts, StreamId, StreamState
from tests.support.clips import CANVAS, numbered
from tests.support.logged import logged
from tests.support.service_parts import Breakage, RecordedSource, Stall
from tests.support.wait import wait_until

ID = StreamId("gate-east")
PICTURE = numbered(0, width=64, height=36)
FOREVER = Stall(float("inf"))


def quickly(_low: float, _high: float) -> float:
    return 0.01


class Connections:
    """Gives a recorded source for each connection, from a script."""

    def __init__(self, *scripts, is_live: bool = True) -> None:
        self.scripts = list(scripts)
        self.sources: list[RecordedSource] = []
        self.is_live = is_live

    def __call__(self) -> RecordedSource:
        script = self.scripts.pop(0) if self.scripts else [FOREVER]
        if isinstance(script, Exception):
            raise script
        source = RecordedSource(ID, script, preprocess=CANVAS, fps=1000, is_live=self.is_live)
        self.sources.append(source)
        return source


def camera(connections: Connections, *, stall_s: float = 0.1, is_endless: bool = True, **more):
    statuses = []
    made = Camera(
        ID,
        connections,
        is_live=getattr(connections, "is_live", True),
        is_endless=is_endless,
        stall_s=stall_s,
        first_frame_s=more.pop("first_frame_s", 0.1),
        backoff=more.pop("backoff", CameraBackoff(quickly)),
        on_status=lambda status: statuses.append(status),
        **more,
    )
    return made, statuses


def opened(*arguments, **more):
    made, statuses = camera(*arguments, **more)
    made.open()
    return made, statuses


def frames_within(source: Camera, seconds: float) -> list:
    deadline = time.monotonic() + seconds
    found = []
    while time.monotonic() < deadline:
        if (frame := source.read(0.05)) is not None:
            found.append(frame)
    return found


def frames_until(source: Camera, condition: Callable[[list], object], *, what: str) -> list:
    """Read until `condition` holds of the frames so far; return them."""
    found = []

    def look() -> object:
        if (frame := source.read(0.05)) is not None:
            found.append(frame)
        return condition(found)

    wait_until(look, what=what)
    return found


def states(statuses) -> list[StreamState]:
    return [status.state for status in statuses]


def test_stream_that_breaks_is_connected_again_with_a_new_source():
    connections = Connections([PICTURE] * 3 + [Breakage(SourceError("the cable is out"))], [PICTURE] * 3 + [FOREVER])
    source, statuses = opened(connections, stall_s=5, first_frame_s=5)
    frames = frames_within(source, 0.3)
    source.close()

    assert len(connections.sources) == 2
    assert states(statuses) == [
        StreamState.CONNECTING,
        StreamState.UP,
        StreamState.DOWN,
        StreamState.UP,
    ]
    assert statuses[2].reason == "the cable is out"
    assert statuses[3].reconnects == source.reconnects == 1
    numbers = [frame.header.frame for frame in frames]
    assert numbers == sorted(set(numbers))
    times = [frame.header.pts_ns for frame in frames]
    assert times == sorted(set(times))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


class StoppedSource(RecordedSource):
    """While whose second frame is waited for, or just before, the whole process is stopped for five seconds."""

    def __init__(self, clock: Clock, *, is_inside: bool) -> None:
        super().__init__(ID, [PICTURE] * 2, preprocess=CANVAS, fps=1000)
        self.clock, self.is_inside, self.reads = clock, is_inside, 0

    def read(self, timeout_s):
        self.reads += 1
        if self.reads in (1, 3):
            return super().read(1.0)
        self.clock.now_s += timeout_s + 5.0 * (self.is_inside and self.reads == 2)
        return None


@pytest.mark.parametrize("is_inside", [True, False])
def test_what_the_process_itself_stood_still_for_is_no_silence_of_the_camera(is_inside):
    clock = Clock()
    source, statuses = opened(lambda: StoppedSource(clock, is_inside=is_inside), stall_s=3.0, clock=clock)
    assert source.read(1.0) is not None
    if not is_inside:
        clock.now_s += 5.0

    assert (source.read(0.2) or source.read(1.0)) is not None
    assert states(statuses) == [StreamState.CONNECTING, StreamState.UP]
    stopped_at_s = clock.now_s
    while StreamState.DOWN not in states(statuses):
        source.read(0.2)
    assert clock.now_s - stopped_at_s == pytest.approx(3.0, abs=0.5)


def test_live_stream_that_ends_is_connected_again():
    source, statuses = opened(Connections([PICTURE], [PICTURE, FOREVER]), stall_s=5, first_frame_s=5)

    frames_until(source, lambda found: len(found) == 2, what="a frame of each connection")
    assert states(statuses)[:4] == [StreamState.CONNECTING, StreamState.UP, StreamState.DOWN, StreamState.UP]


def test_stall_is_noticed_after_the_configured_time():
    source, statuses = opened(Connections([PICTURE, FOREVER], [PICTURE, FOREVER]), stall_s=0.2, first_frame_s=5)
    assert source.read(1.0) is not None
    begun = time.monotonic()
    assert source.read(1.0) is not None

    assert time.monotonic() - begun >= 0.19  # and not the 5 s of a first frame: the read would have given up before
    assert statuses[2].reason == "no frame for 0.2 s"


@pytest.mark.parametrize(("frames", "is_slow"), [(1, True), (200, False)])
def test_a_camera_whose_frames_are_further_apart_than_a_stall_is_told_which_setting_to_raise(caplog, frames, is_slow):
    connections = Connections([PICTURE] * frames + [FOREVER])
    source, statuses = opened(connections, stall_s=0.3, first_frame_s=5, remedy="look at the cable")
    with caplog.at_level(logging.WARNING):
        wait_until(
            lambda: source.read(0.05) is None and StreamState.DOWN in states(statuses), what="the end of patience"
        )
    source.close()

    (line,) = [one for one in logged(caplog).splitlines() if "no frame for 0.3 s" in one]
    assert "look at the cable" in line
    assert ("stall_s" in line) == is_slow


def test_first_frame_may_take_longer_than_a_stall():
    source, _ = opened(Connections([Stall(0.2), PICTURE, FOREVER]), stall_s=0.05, first_frame_s=1.0)

    assert source.read(1.0) is not None
    assert source.reconnects == 0


def test_read_returns_none_while_the_camera_is_away():
    source, statuses = opened(Connections(*[[Breakage(SourceError("refused"))]] * 50))

    assert frames_until(source, lambda _: source.reconnects > 3, what="more than three attempts") == []
    assert states(statuses) == [StreamState.CONNECTING, StreamState.DOWN]


def test_refusal_waits_long_before_it_asks_again():
    waits = []

    class Recording(CameraBackoff):
        def delay_s(self, *, streamed_s: float, is_refused: bool, cost_s: float = 0.0) -> float:
            waits.append(is_refused)
            return 0.01

    broken = [Breakage(SourceError("401", is_permanent=True))]
    source, _ = opened(Connections(broken, [FOREVER]), backoff=Recording())
    source.read(0.05)

    assert waits == [True]


def test_counts_balance_over_all_connections():
    connections = Connections([PICTURE] * 40 + [Breakage(SourceError("gone"))], [PICTURE] * 40 + [FOREVER])
    source, _ = opened(connections, stall_s=5, first_frame_s=5)
    deadline, taken = time.monotonic() + 0.5, 0
    while time.monotonic() < deadline and source.counts().decoded < 80:
        taken += source.read(0.05) is not None
        threading.Event().wait(0.005)
    source.close()

    counts = source.counts()
    assert counts.decoded == 80
    assert counts.decoded == taken + sum(counts.dropped.values())
    assert counts.dropped[DropReason.LATE] > 0


def test_close_wakes_a_reader_out_of_a_backoff_and_leaves_the_last_state_as_it_was():
    source, statuses = opened(
        Connections([Breakage(SourceError("gone"))]), backoff=CameraBackoff(lambda _low, _high: 1000.0)
    )
    source.read(0.05)
    assert source.phase is CameraPhase.BACKOFF
    done = threading.Event()
    reader = threading.Thread(target=lambda: (source.read(60), done.set()))
    reader.start()
    source.close()

    assert done.wait(1.0)
    reader.join()
    with pytest.raises(SourceError, match="closed"):
        source.read(0.1)
    assert [(status.state, status.reason) for status in statuses][1:] == [(StreamState.DOWN, "gone")]


def test_file_that_cannot_be_read_raises_and_is_not_tried_again():
    connections = Connections([PICTURE, Breakage(SourceError("damaged", is_permanent=True))], is_live=False)
    source, statuses = opened(connections, is_endless=False)
    assert source.read(1.0) is not None
    with pytest.raises(SourceError, match="damaged"):
        source.read(1.0)

    assert states(statuses) == [StreamState.CONNECTING, StreamState.UP, StreamState.DOWN]
    assert len(connections.sources) == 1


def test_file_that_has_been_read_raises_end_of_stream():
    source, statuses = opened(Connections([PICTURE] * 2, is_live=False), is_endless=False)
    assert [source.read(1.0).header.frame for _ in range(2)] == [1, 2]
    with pytest.raises(EndOfStream):
        source.read(1.0)
    source.close()

    assert states(statuses) == [StreamState.CONNECTING, StreamState.UP, StreamState.ENDED]
    assert statuses[-1].reason != "closed"


def test_file_that_gives_nothing_is_given_up_though_its_reader_takes_pauses(monkeypatch):
    monkeypatch.setattr("edge.media.camera.FILE_SILENCE_S", 0.2)
    for pace in (True, False):
        connections = Connections([FOREVER], is_live=pace)
        source, statuses = opened(connections, is_endless=False)
        begun = time.monotonic()
        assert source.read(0.1) is None
        with pytest.raises(SourceError, match=r"0\.2 s") as caught:
            source.read(60.0)
        source.close()

        assert time.monotonic() - begun >= 0.19
        assert caught.value.is_permanent
        assert states(statuses) == [StreamState.CONNECTING, StreamState.DOWN]


def test_paced_file_may_pause_between_frames(monkeypatch):
    monkeypatch.setattr("edge.media.camera.FILE_SILENCE_S", 0.1)
    source, _ = opened(Connections([PICTURE, Stall(0.3), PICTURE]), is_endless=False)

    assert [source.read(1.0).header.frame for _ in range(2)] == [1, 2]
    source.close()


def test_missing_library_is_raised_when_opened():
    source, _ = camera(Connections(MissingDependencyError("no GStreamer")))
    with pytest.raises(MissingDependencyError):
        source.open()


class Hanging(RecordedSource):
    """Breaks at once, and does not end before it is released."""

    def __init__(self) -> None:
        super().__init__(ID, [Breakage(SourceError("gone"))], preprocess=CANVAS, is_live=True)
        self.released = threading.Event()

    def close(self) -> None:
        self.released.wait(30)


def test_teardown_that_hangs_does_not_hold_up_the_stream(monkeypatch, caplog):
    monkeypatch.setattr("edge.media.camera.TEARDOWN_S", 0.05)
    hanging = Hanging()
    following = RecordedSource(ID, [PICTURE, FOREVER], preprocess=CANVAS, is_live=True)
    source, _ = opened(iter([hanging, following]).__next__, stall_s=5)

    assert source.read(1.0) is not None
    assert stuck_streams() == (ID,)
    assert "stream-teardown-hangs stream=gate-east" in logged(caplog)
    assert has_stuck_threads()
    hanging.released.set()
    source.close()
    wait_until(lambda: not has_stuck_threads(), what="the end of the helper")


@pytest.mark.parametrize(
    "watch", [None, lambda _: ProbeWatch(lambda: True, name="east", every_s=0.02)], ids=["unwatched", "watched"]
)
def test_camera_whose_teardown_hangs_twice_is_left_out_until_one_has_ended(monkeypatch, caplog, watch):
    monkeypatch.setattr("edge.media.camera.TEARDOWN_S", 0.05)
    hanging = [Hanging(), Hanging()]
    following = RecordedSource(ID, [PICTURE, FOREVER], preprocess=CANVAS, is_live=True)
    left = [*hanging, following]
    source, statuses = opened(lambda: left.pop(0), stall_s=5, watch=watch)
    begun_s = time.thread_time()
    assert source.read(1.0) is None

    assert left == [following]
    assert source.is_left_out
    assert time.thread_time() - begun_s < 0.5  # it waits, and does not look all the time
    assert (statuses[-1].state, statuses[-1].reconnects) == (StreamState.DOWN, 1)
    assert "left out" in statuses[-1].reason
    assert "stream down stream=gate-east" in caplog.text

    hanging[0].released.set()
    wait_until(lambda: source.read(0.2) is not None, what="a frame, once one connection has ended")
    assert (statuses[-1].state, statuses[-1].reconnects) == (StreamState.UP, 2)
    hanging[1].released.set()
    source.close()
    wait_until(lambda: not has_stuck_threads(), what="the end of the helpers")


def test_callback_error_of_a_source_is_a_failure_like_any_other():
    class Broken(RecordedSource):
        def read(self, timeout_s: float):
            raise MissingDependencyError("no H.265 decoder")

        def counts(self) -> SourceCounts:
            return SourceCounts()

    source, statuses = opened(lambda: Broken(ID, [], preprocess=CANVAS, is_live=True))

    assert source.read(0.05) is None
    assert statuses[-1].reason == "no H.265 decoder"
    source.close()


def test_a_camera_that_is_lost_and_back_is_one_warning_each(caplog):
    caplog.set_level(logging.INFO, "edge.media.camera")
    gone = SourceError("rtsp://c/a: no route")
    refused = SourceError("rtsp://c/a: Unauthorized", hint="store the password", is_permanent=True)
    connections = Connections(*([Breakage(error)] for error in (gone, gone, refused)), [PICTURE] * 3 + [FOREVER])
    source, _ = opened(connections, stall_s=5, first_frame_s=5, address="rtsp://c/a", remedy="look at the cable")
    frames_until(source, lambda _: "stream up" in caplog.messages[-1], what="the last connection")
    source.close()

    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.getMessage().startswith("stream ")]
    assert [line for line in told if line[0] == "WARNING"] == [
        ("WARNING", "stream down stream=gate-east address=rtsp://c/a reconnects=0 reason=no route; look at the cable"),
        (
            "WARNING",
            "stream down stream=gate-east address=rtsp://c/a reconnects=2 reason=Unauthorized; store the password",
        ),
        ("WARNING", "stream up stream=gate-east address=rtsp://c/a reconnects=3 reason=frames arrive"),
    ]


UNKNOWN_HOST = SourceError("rtsp://c/a: no such host name: c")
VAGUE = SourceError("rtsp://c/a: Could not open resource", hint="look at it")


def away(problem):
    return lambda _: ProbeWatch(lambda: False, name="east", why=problem, every_s=0.02)


def test_why_a_camera_is_not_reached_is_told_where_its_decoder_does_not_know():
    watch = away(lambda: UNKNOWN_HOST)
    source, statuses = opened(Connections([Breakage(VAGUE)]), watch=watch, address="rtsp://c/a")
    source.read(0.3)

    assert [(one.state, one.reason) for one in statuses[1:]] == [(StreamState.DOWN, "rtsp://c/a: no such host name: c")]
    source.close()


def test_an_answer_of_a_name_server_that_comes_late_changes_the_reason_and_warns_no_second_time(monkeypatch, caplog):
    monkeypatch.setattr(probe, "_FIRST_ANSWER_S", 0.01)
    has_answered = threading.Event()
    watch = away(lambda: UNKNOWN_HOST if has_answered.wait(30) else None)
    source, statuses = opened(Connections([Breakage(VAGUE)]), watch=watch, address="rtsp://c/a")
    wait_until(lambda: source.read(0.05) is None and statuses[-1].state is StreamState.DOWN, what="it is down")
    has_answered.set()
    wait_until(lambda: source.read(0.05) is None and len(statuses) == 3, what="why")

    assert [one.reason for one in statuses[1:]] == [VAGUE.problem, "rtsp://c/a: no such host name: c"]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    source.close()


def test_a_camera_that_is_lost_while_it_streams_keeps_the_reason_of_that():
    gone = SourceError("rtsp://c/a: the camera ended the stream")
    source, statuses = opened(
        Connections([PICTURE, Breakage(gone)]), watch=away(lambda: UNKNOWN_HOST), stall_s=5, address="rtsp://c/a"
    )
    assert source.read(1.0) is not None
    source.read(0.3)

    assert (statuses[-1].state, statuses[-1].reason) == (StreamState.DOWN, "rtsp://c/a: the camera ended the stream")
    source.close()


def test_a_camera_that_starts_is_no_warning(caplog):
    caplog.set_level(logging.INFO, "edge.media.camera")
    source, _ = opened(Connections([PICTURE] * 3 + [FOREVER]), stall_s=5, first_frame_s=5)
    frames_within(source, 0.2)
    source.close()

    assert {one.levelname for one in caplog.records} == {"INFO"}
