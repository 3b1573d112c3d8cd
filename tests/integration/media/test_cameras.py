"""Network cameras that work, fail, freeze and come back: a real RTSP server in its own process."""

import gc
import itertools
import logging
import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.media.address import parse_address
from edge.media.camera import CameraPhase
from edge.media.gstreamer.source import GstSource
from edge.media.threads import has_stuck_threads
from edge.types import ClockSource, DropReason, ImageSize, StreamState
from tests.support.clips import CANVAS, write_clip
from tests.support.ports import free_port
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.tcp_proxy import TcpProxy
from tests.support.viewer import Viewer, assert_balances
from tests.support.wait import QuietWatch, wait_until

pytestmark = pytest.mark.slow_but(
    "test_camera_delivers_in_its_codec",
    "test_killed_server_is_found_again_and_the_other_camera_does_not_notice",
    "test_f39_login_by_credential_and_not_without",
    "test_limited_camera_keeps_its_limit",
    "test_a_burst_after_a_pause_has_the_times_of_its_pictures_and_leaves_no_camera_blind",
    "test_times_are_even_where_pictures_come_in_another_order_than_they_are_shown",
    "test_a_limit_drops_frames_before_they_are_scaled",
    reason="further clips and cameras",
)
LENGTH = 240  # of the clips that the server repeats: longer than a test looks, because its own seam is not even
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("clips")
    return {
        "h264": str(write_clip(folder / "a.h264", count=LENGTH)),
        "h265": str(write_clip(folder / "a.hevc", codec="libx265", count=LENGTH, x265="bframes=0")),
        "jpeg": "",
    }


@pytest.fixture
def server(clips) -> Iterator[RtspServer]:
    with RtspServer({f"/{codec}": RtspMount(clip, codec) for codec, clip in clips.items()}) as made:
        yield made


@pytest.mark.parametrize("codec", ["h264", "h265", "jpeg"])
def test_camera_delivers_in_its_codec(server, codec):
    with Viewer(server.url(f"/{codec}")) as viewer:
        viewer.await_frames(40)
        if codec != "jpeg":
            viewer.await_unbroken(20, LENGTH)

    header = viewer.headers[-1]
    assert header.clock in (ClockSource.ARRIVAL, ClockSource.RTCP_SR)
    assert header.source_size == ImageSize(width=320, height=176 if codec == "jpeg" else 180)
    assert 0 <= header.decode_ns < 1e9
    assert header.frame <= viewer.source.counts().decoded
    assert_balances(viewer)
    assert viewer.states == [StreamState.CONNECTING, StreamState.UP]


def test_pyav_reads_the_same_camera(server):
    with Viewer(server.url("/h264"), decoder="pyav") as viewer:
        viewer.await_frames(60)  # at first FFmpeg hands out what it has gathered while it looked at the stream
        viewer.await_unbroken(10, LENGTH)

    assert_balances(viewer)


@pytest.mark.parametrize("codec", ["h264", "h265", "jpeg"])
def test_cameras_reports_tell_when_a_picture_was_taken(server, codec):
    watch = QuietWatch()
    with Viewer(server.url(f"/{codec}")) as viewer:
        wait_until(lambda: is_by_sender(viewer), what="a sender report")
        viewer.await_frames(30)
    pace = watch.pace()

    first = next(i for i, header in enumerate(viewer.headers) if header.clock is ClockSource.RTCP_SR)
    by_sender = viewer.headers[first:]
    assert {header.clock for header in by_sender} == {ClockSource.RTCP_SR}
    times = [header.captured_at_ns for header in by_sender]
    assert times == sorted(set(times))
    # The server runs by the same clock: what was sent arrives a little later, never before.
    now_ns = time.time_ns() - time.monotonic_ns()
    ages_ms = [(now_ns + header.read_at_ns - header.captured_at_ns) / 1e6 for header in by_sender]
    assert 0 < statistics.median(ages_ms) * pace < 500


def is_by_sender(viewer: Viewer) -> bool:
    return bool(viewer.headers) and viewer.headers[-1].clock is ClockSource.RTCP_SR


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_both_decoders_stamp_a_picture_with_the_same_time(server, codec):
    watch = QuietWatch()
    with (
        Viewer(server.url(f"/{codec}")) as gstreamer,
        Viewer(server.url(f"/{codec}"), decoder="pyav") as pyav,
    ):
        gstreamer.await_frames(60)
        pyav.await_frames(90)
    pace = watch.pace()

    known = dict(zip(gstreamer.codes, gstreamer.headers, strict=True))
    seen = [(known[code], header) for code, header in zip(pyav.codes, pyav.headers, strict=True) if code in known]
    assert len(seen) > 40
    # How long after its moment by RTP, which FFmpeg hands on, the least delayed picture is stamped: the others waited
    # for a CPU, too. Less than a picture apart: what a decoder holds back are two and more.
    by_gstreamer, by_pyav = (min(pair[which].captured_at_ns - pair[1].pts_ns for pair in seen) for which in (0, 1))
    assert abs(by_pyav - by_gstreamer) * pace < 1e9 / 30
    assert all(header.decode_ns > 0 for header in pyav.headers)


@pytest.mark.parametrize("max_fps", [10, 7.5])
def test_limited_camera_keeps_its_limit(server, max_fps):
    with Viewer(server.url("/h264"), max_fps=max_fps) as viewer:
        viewer.await_frames(20)

    times = [header.pts_ns / 1e9 for header in viewer.headers[5:]]  # of the stream: when they arrive is the machine's
    steps_s = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.median(steps_s) == pytest.approx(1 / max_fps, rel=0.1)
    assert (len(times) - 1) / (times[-1] - times[0]) < 1.1 * max_fps
    assert_balances(viewer)


def test_killed_server_is_found_again_and_the_other_camera_does_not_notice(clips):
    mounts = {"/h264": RtspMount(clips["h264"], "h264")}
    with (
        RtspServer(mounts) as east,
        RtspServer(mounts) as west,
        Viewer(east.url("/h264")) as failing,
        Viewer(west.url("/h264")) as steady,
    ):
        failing.await_frames(30)
        steady.await_frames(10)
        before = len(steady.headers)
        for _ in range(2):
            east.kill()
            failing.await_state(StreamState.DOWN)
            steady.await_frames(10)
            wait_until(lambda: failing.source.phase is CameraPhase.BACKOFF, what="a backoff")
            east.start()
            failing.await_state(StreamState.UP)
            failing.await_frames(10)

    # By the numbers in the pictures: a busy machine sends, takes and decodes them late, and counts what it leaves out.
    seen, codes = steady.headers[before:], steady.codes[before:]
    sent = sum((later - earlier) % LENGTH for earlier, later in itertools.pairwise(codes))
    assert sent - (seen[-1].frame - seen[0].frame) <= 4 + steady.source.counts().skipped
    assert max(later.pts_ns - earlier.pts_ns for earlier, later in itertools.pairwise(seen)) < 1e9
    assert failing.statuses[-1].reconnects >= 2
    assert steady.states == [StreamState.CONNECTING, StreamState.UP]
    for viewer in (failing, steady):
        assert_balances(viewer)


def test_frozen_server_is_a_stall_after_the_configured_time(server):
    with Viewer(server.url("/h264"), stall_s=1.0) as viewer:
        viewer.await_frames(30)
        begun, watch = time.monotonic(), QuietWatch()
        server.freeze()
        viewer.await_state(StreamState.DOWN)
        assert time.monotonic() - begun > 0.8
        assert watch.seconds() < 2.0
        assert viewer.reason.endswith(" 1 s")
        server.thaw()
        # A connection that was begun towards the frozen server may still have to run into its own patience.
        viewer.await_state(StreamState.UP)
        viewer.await_frames(10)

    assert_balances(viewer)


@BOTH
def test_frozen_camera_is_closed_with_its_threads(server, decoder):
    """A thread that is inside FFmpeg while the interpreter ends takes the process down with it."""
    with Viewer(server.url("/h264"), decoder=decoder, stall_s=30) as viewer:
        viewer.await_frames(10)
        server.freeze()
        watch = QuietWatch()

    assert watch.seconds() < 2.5
    assert not has_stuck_threads()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("decode", "teardown"))]


def test_pyav_reads_on_after_a_pause_of_the_camera(server):
    with Viewer(server.url("/h264"), decoder="pyav", stall_s=30) as viewer:
        viewer.await_frames(10)
        server.freeze()
        arrived = len(viewer.arrivals)
        wait_until(lambda: time.monotonic() - viewer.arrivals[-1] > 1.5, what="a pause")
        server.thaw()
        viewer.await_frames(10)

    assert len(viewer.arrivals) > arrived
    assert viewer.states == [StreamState.CONNECTING, StreamState.UP]


class PausingProxy(TcpProxy):
    """Pauses once for each of `due`, within a packet of pictures, as a radio link does."""

    due = 0

    def forward(self, source, sink, number, *, is_client):
        while data := source.recv(1000):
            if not is_client and self.due and len(data) == 1000:
                sink.sendall(data[:500])
                time.sleep(1.3)
                self.due, data = self.due - 1, data[500:]
            sink.sendall(data)


@BOTH
def test_a_pause_within_a_packet_ends_nothing(server, decoder):
    with (
        PausingProxy(server.port) as proxy,
        Viewer(f"rtsp://127.0.0.1:{proxy.port}/h264", decoder=decoder, stall_s=30) as viewer,
    ):
        for _ in range(3):
            viewer.await_frames(10)
            proxy.due = 1
            wait_until(lambda: not proxy.due, what="a pause")
        viewer.await_frames(10)

    assert viewer.states == [StreamState.CONNECTING, StreamState.UP]


class HoldingProxy(TcpProxy):
    """Holds back what the camera sends for `due_s`, once, and then gives it all at once, as Wi-Fi does."""

    due_s = 0.0

    def forward(self, source, sink, number, *, is_client):
        while data := source.recv(65_536):
            if not is_client and self.due_s:
                time.sleep(self.due_s)
                self.due_s = 0.0
            sink.sendall(data)


def test_a_burst_after_a_pause_has_the_times_of_its_pictures_and_leaves_no_camera_blind(server):
    with (
        HoldingProxy(server.port) as proxy,
        Viewer(f"rtsp://127.0.0.1:{proxy.port}/h264", stall_s=30, max_fps=10) as viewer,
    ):
        viewer.await_frames(5)
        proxy.due_s = 1.2
        wait_until(lambda: not proxy.due_s, what="a pause")
        viewer.await_frames(10)
        wait_until(lambda: viewer.headers[-1].decode_ns < 3e8, what="a frame that was not held up")
        viewer.await_frames(6)

    headers = viewer.headers[1:]
    gaps_s = [(later.read_at_ns - earlier.read_at_ns) / 1e9 for earlier, later in itertools.pairwise(headers)]
    steps_ms = [(later.pts_ns - earlier.pts_ns) / 1e6 for earlier, later in itertools.pairwise(headers)]
    assert sorted(gaps_s)[-2] < 0.7  # and one pause
    assert min(steps_ms) > 60
    assert sum(steps_ms) / 1e3 == pytest.approx(sum(gaps_s), abs=0.5)
    now_ns = time.time_ns() - time.monotonic_ns()
    assert all(header.captured_at_ns < now_ns + header.read_at_ns + 1e7 for header in headers)


def test_times_are_even_where_pictures_come_in_another_order_than_they_are_shown(tmp_path):
    clip = write_clip(tmp_path / "b.hevc", codec="libx265", count=LENGTH, x265="bframes=4:b-adapt=0:b-pyramid=1")
    with RtspServer({"/b": RtspMount(str(clip), "h265")}) as server, Viewer(server.url("/b")) as viewer:
        viewer.await_frames(40)

    steps_ms = [
        (later.pts_ns - earlier.pts_ns) / 1e6 / ((later_code - earlier_code) % LENGTH)
        for (earlier, earlier_code), (later, later_code) in itertools.pairwise(
            zip(viewer.headers[5:], viewer.codes[5:], strict=True)
        )
    ]
    assert steps_ms == pytest.approx([1e3 / 30] * len(steps_ms), abs=0.1)


def test_refused_connection_is_waited_for_and_close_is_prompt():
    with Viewer(f"rtsp://127.0.0.1:{free_port()}/main") as viewer:
        viewer.await_state(StreamState.DOWN)
        wait_until(lambda: viewer.source.is_known_away, what="a probe without an answer")
        watch = QuietWatch()

    assert watch.seconds() < 1.0
    assert viewer.headers == []
    assert viewer.states == [StreamState.CONNECTING, StreamState.DOWN]


@BOTH
def test_web_camera_that_is_not_there_says_so(decoder):
    with Viewer(f"http://127.0.0.1:{free_port()}/video", decoder=decoder) as viewer:
        viewer.await_state(StreamState.DOWN)

    assert any(one in viewer.reason for one in ("cannot be reached", "nothing listens on port"))


def test_wrong_path_is_asked_for_rarely(server):
    with Viewer(server.url("/nowhere")) as viewer:
        viewer.await_state(StreamState.DOWN)
        assert "Not found" in viewer.reason
        assert viewer.source.phase is CameraPhase.BACKOFF
        assert viewer.source.due_in_s > 20


@BOTH
def test_f39_login_by_credential_and_not_without(clips, decoder, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    user, password = "bob", "p@ss: word/1"
    with RtspServer({"/h264": RtspMount(clips["h264"], "h264", (user, password))}) as server:
        url = server.url("/h264")
        with Viewer(url, credential=(user, password), decoder=decoder) as viewer:
            viewer.await_frames(5)
        for wrong in (None, (user, "guess"), (user, password[:-1])):
            with Viewer(url, credential=wrong, decoder=decoder) as viewer:
                viewer.await_state(StreamState.DOWN)
                assert "nauthorized" in viewer.reason
                assert viewer.source.due_in_s > 20
    shown = caplog.text + "".join(capfd.readouterr()) + str(viewer.statuses)
    assert password not in shown
    assert "p%40ss" not in shown


def test_nothing_leaks_over_reconnections(clips, monkeypatch):
    monkeypatch.setattr("edge.media.probe.HEALTHY_S", 0.0)

    def measured() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    with RtspServer({"/h264": RtspMount(clips["h264"], "h264")}) as server:
        with Viewer(server.url("/h264")) as viewer:
            levels = []
            for _ in range(6):
                viewer.await_frames(5)
                levels.append(measured())
                server.kill()
                viewer.await_state(StreamState.DOWN)
                server.start()
                viewer.await_state(StreamState.UP)
        final = measured()

    descriptors, threads = zip(*levels, strict=True)
    assert descriptors[-1] <= descriptors[0] + 2, descriptors
    assert threads[-1] <= threads[0] + 2, threads
    assert final[1] <= threads[0]


@pytest.mark.parametrize("uri", ["test://?pattern=ball", "clip.mp4"])
def test_closed_pipeline_is_freed(tmp_path, uri):
    write_clip(tmp_path / "clip.mp4", count=5)
    address = parse_address(uri, base_dir=tmp_path)
    freed = []
    for _ in range(3):
        config = StreamConfig(id="east", uri=uri, loop=True)
        source = GstSource(config, address, preprocess=CANVAS, is_nvmm=False)
        source.pipeline.weak_ref(lambda: freed.append("pipeline"))
        source.pipeline.get_by_name("fitted").weak_ref(lambda: freed.append("fitted"))
        source.open()
        assert source.read(5.0) is not None
        source.close()
        del source
    gc.collect()

    assert sorted(freed) == ["fitted"] * 3 + ["pipeline"] * 3


def test_a_limit_drops_frames_before_they_are_scaled():
    uri = "test://?fps=30"
    config = StreamConfig(id="east", uri=uri, max_fps=10)
    source = GstSource(config, parse_address(uri, base_dir=Path("/")), preprocess=CANVAS, is_nvmm=False)
    source.open()
    try:
        frames = [source.read(5.0) for _ in range(5)]
        counts = source.counts()
    finally:
        source.close()

    assert all(frame is not None for frame in frames)
    assert counts.dropped[DropReason.MAX_FPS] >= 8
