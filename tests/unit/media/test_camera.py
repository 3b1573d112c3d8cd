from __future__ import annotations

import logging
import threading
import time

import pytest

from edge.errors import EndOfStream, MissingDependencyError, SourceError
from edge.media.backoff import CameraBackoff
from edge.media.camera import Camera, CameraPhase
from edge.media.threads import has_stuck_threads
from edge.types import DropReason, SourceCounts, StreamState, stream_id
from tests.support.clips import CANVAS, numbered
from tests.support.recorded import Breakage, RecordedSource, Stall
from tests.support.wait import wait_until

ID = stream_id("gate-east")
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
        is_live=connections.is_live,
        is_endless=is_endless,
        stall_s=stall_s,
        first_frame_s=more.pop("first_frame_s", 0.1),
        backoff=more.pop("backoff", CameraBackoff(quickly)),
        on_status=lambda status: statuses.append(status),
        **more,
    )
    return made, statuses


def frames_within(source: Camera, seconds: float) -> list:
    deadline = time.monotonic() + seconds
    found = []
    while time.monotonic() < deadline:
        if (frame := source.read(0.05)) is not None:
            found.append(frame)
    return found


def states(statuses) -> list[StreamState]:
    return [status.state for status in statuses]


def test_stream_that_breaks_is_connected_again_with_a_new_source():
    connections = Connections([PICTURE] * 3 + [Breakage(SourceError("the cable is out"))], [PICTURE] * 3 + [FOREVER])
    source, statuses = camera(connections, stall_s=5, first_frame_s=5)
    source.open()
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


def test_live_stream_that_ends_is_connected_again():
    source, statuses = camera(Connections([PICTURE], [PICTURE, FOREVER]), stall_s=5, first_frame_s=5)
    source.open()

    assert len(frames_within(source, 0.2)) == 2
    assert states(statuses)[:4] == [StreamState.CONNECTING, StreamState.UP, StreamState.DOWN, StreamState.UP]


def test_stall_is_noticed_after_the_configured_time():
    source, statuses = camera(Connections([PICTURE, FOREVER], [PICTURE, FOREVER]), stall_s=0.2, first_frame_s=5)
    source.open()
    assert source.read(1.0) is not None
    begun = time.monotonic()
    assert source.read(1.0) is not None

    assert 0.19 <= time.monotonic() - begun < 0.5
    assert statuses[2].reason == "no frame for 0.2 s"


def test_first_frame_may_take_longer_than_a_stall():
    source, _ = camera(Connections([Stall(0.2), PICTURE, FOREVER]), stall_s=0.05, first_frame_s=1.0)
    source.open()

    assert source.read(1.0) is not None
    assert source.reconnects == 0


def test_read_returns_none_while_the_camera_is_away():
    source, statuses = camera(Connections(*[[Breakage(SourceError("refused"))]] * 50))
    source.open()

    assert frames_within(source, 0.2) == []
    assert states(statuses) == [StreamState.CONNECTING, StreamState.DOWN]
    assert source.reconnects > 3


def test_refusal_waits_long_before_it_asks_again():
    waits = []

    class Recording(CameraBackoff):
        def delay_s(self, *, streamed_s: float, is_refused: bool) -> float:
            waits.append(is_refused)
            return 0.01

    broken = [Breakage(SourceError("401", is_permanent=True))]
    source, _ = camera(Connections(broken, [FOREVER]), backoff=Recording())
    source.open()
    source.read(0.05)

    assert waits == [True]


def test_counts_balance_over_all_connections():
    connections = Connections([PICTURE] * 40 + [Breakage(SourceError("gone"))], [PICTURE] * 40 + [FOREVER])
    source, _ = camera(connections, stall_s=5, first_frame_s=5)
    source.open()
    deadline, taken = time.monotonic() + 0.5, 0
    while time.monotonic() < deadline and source.counts().decoded < 80:
        taken += source.read(0.05) is not None
        threading.Event().wait(0.005)
    source.close()

    counts = source.counts()
    assert counts.decoded == 80
    assert counts.decoded == taken + sum(counts.dropped.values())
    assert counts.dropped[DropReason.LATE] > 0


def test_close_wakes_a_reader_out_of_a_backoff():
    source, _ = camera(Connections([Breakage(SourceError("gone"))]), backoff=CameraBackoff(lambda _low, _high: 1000.0))
    source.open()
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


def test_file_that_cannot_be_read_raises_and_is_not_tried_again():
    connections = Connections([PICTURE, Breakage(SourceError("damaged", is_permanent=True))], is_live=False)
    source, statuses = camera(connections, is_endless=False)
    source.open()
    assert source.read(1.0) is not None
    with pytest.raises(SourceError, match="damaged"):
        source.read(1.0)

    assert states(statuses) == [StreamState.CONNECTING, StreamState.UP, StreamState.DOWN]
    assert len(connections.sources) == 1


def test_file_that_has_been_read_raises_end_of_stream():
    source, statuses = camera(Connections([PICTURE] * 2, is_live=False), is_endless=False)
    source.open()
    assert [source.read(1.0).header.frame for _ in range(2)] == [1, 2]
    with pytest.raises(EndOfStream):
        source.read(1.0)
    source.close()

    assert states(statuses) == [StreamState.CONNECTING, StreamState.UP, StreamState.ENDED]
    assert statuses[-1].reason != "closed"


def test_close_leaves_the_last_state_as_it_was():
    source, statuses = camera(
        Connections([Breakage(SourceError("gone"))]), backoff=CameraBackoff(lambda _low, _high: 1000.0)
    )
    source.open()
    source.read(0.05)
    source.close()

    assert [(status.state, status.reason) for status in statuses][1:] == [(StreamState.DOWN, "gone")]


def test_file_that_gives_nothing_is_given_up_though_its_reader_takes_pauses(monkeypatch):
    monkeypatch.setattr("edge.media.camera.FILE_SILENCE_S", 0.2)
    for pace in (True, False):
        connections = Connections([FOREVER], is_live=pace)
        source, statuses = camera(connections, is_endless=False)
        source.open()
        begun = time.monotonic()
        assert source.read(0.1) is None
        with pytest.raises(SourceError, match=r"no frame for 0\.2 s") as caught:
            source.read(60.0)
        source.close()

        assert 0.19 <= time.monotonic() - begun < 1.0
        assert caught.value.is_permanent
        assert states(statuses) == [StreamState.CONNECTING, StreamState.DOWN]


def test_paced_file_may_pause_between_frames(monkeypatch):
    monkeypatch.setattr("edge.media.camera.FILE_SILENCE_S", 0.1)
    source, _ = camera(Connections([PICTURE, Stall(0.3), PICTURE]), is_endless=False)
    source.open()

    assert [source.read(1.0).header.frame for _ in range(2)] == [1, 2]
    source.close()


def test_missing_library_is_raised_when_opened():
    source, _ = camera(Connections(MissingDependencyError("no GStreamer")))
    with pytest.raises(MissingDependencyError):
        source.open()


def test_teardown_that_hangs_does_not_hold_up_the_stream(monkeypatch, caplog):
    monkeypatch.setattr("edge.media.camera.TEARDOWN_S", 0.05)
    released = threading.Event()

    class Hanging(RecordedSource):
        def close(self) -> None:
            released.wait(10)

    hanging = Hanging(ID, [Breakage(SourceError("gone"))], preprocess=CANVAS, is_live=True)
    following = RecordedSource(ID, [PICTURE, FOREVER], preprocess=CANVAS, is_live=True)
    sources = iter([hanging, following])
    source = Camera(ID, lambda: next(sources), is_live=True, is_endless=True, stall_s=5, backoff=CameraBackoff(quickly))
    source.open()

    assert source.read(1.0) is not None
    assert source.is_stuck
    assert "teardown hangs stream=gate-east" in caplog.text
    assert has_stuck_threads()
    released.set()
    source.close()
    wait_until(lambda: not has_stuck_threads(), timeout_s=5, what="the end of the helper")


def test_callback_error_of_a_source_is_a_failure_like_any_other():
    class Broken(RecordedSource):
        def read(self, timeout_s: float):
            raise MissingDependencyError("no H.265 decoder")

        def counts(self) -> SourceCounts:
            return SourceCounts()

    source = Camera(
        ID,
        lambda: Broken(ID, [], preprocess=CANVAS, is_live=True),
        is_live=True,
        is_endless=True,
        stall_s=1,
        backoff=CameraBackoff(quickly),
        on_status=(statuses := []).append,
    )
    source.open()

    assert source.read(0.05) is None
    assert statuses[-1].reason == "no H.265 decoder"
    source.close()


def test_a_camera_that_is_lost_and_back_is_one_warning_each(caplog):
    caplog.set_level(logging.INFO, "edge.media.camera")
    gone = SourceError("rtsp://c/a: no route")
    refused = SourceError("rtsp://c/a: Unauthorized", hint="store the password", is_permanent=True)
    connections = Connections(*([Breakage(error)] for error in (gone, gone, refused)), [PICTURE] * 3 + [FOREVER])
    source, _ = camera(connections, stall_s=5, first_frame_s=5, address="rtsp://c/a", remedy="look at the cable")
    source.open()
    frames_within(source, 0.5)
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


def test_a_camera_that_starts_is_no_warning(caplog):
    caplog.set_level(logging.INFO, "edge.media.camera")
    source, _ = camera(Connections([PICTURE] * 3 + [FOREVER]), stall_s=5, first_frame_s=5)
    source.open()
    frames_within(source, 0.2)
    source.close()

    assert {one.levelname for one in caplog.records} == {"INFO"}
