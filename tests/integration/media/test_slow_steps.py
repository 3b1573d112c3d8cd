"""Cameras with sound on a machine where one step takes half a second: what a thread finds out, another one asks for."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.errors import SourceError
from edge.media import select
from edge.media.ffmpeg import source as pyav
from edge.media.gstreamer import build, clean, source
from edge.media.gstreamer.binding import load
from edge.media.gstreamer.bus import SenderClock
from edge.media.gstreamer.tail import BufferGate
from edge.media.threads import has_stuck_threads
from edge.types import StreamState
from tests.support.clips import CANVAS, write_clip
from tests.support.rtsp import RtspMount, RtspServer, with_sound
from tests.support.viewer import Viewer
from tests.support.wait import QuietWatch, busy

SOUNDS = ("aac", "pcmu", "pcma", "opus")
FOUR = (("before", "aac"), ("behind", "pcmu"), ("behind", "opus"), ("before", "pcma"))
UP_AT_ONCE = [StreamState.CONNECTING, StreamState.UP]
STEPS = {
    "making the pipeline": (source, "PipelineBuilder"),
    "making a part of it": (build, "parse_bin"),
    "making the decoder": (build, "parse_decoder"),
    "setting the decoder": (build.PipelineBuilder, "_set_decoder_properties"),
    "listening to the decoder": (build, "CleanFrames"),
    "listening to libav": (clean, "_listen_to_libav"),
    "linking the decoder": (build.PipelineBuilder, "_link"),
    "linking what follows it": (build.PipelineBuilder, "_link_tail"),
    "choosing a track": (build.PipelineBuilder, "_on_select_stream"),
    "taking a pad": (build.PipelineBuilder, "_take_pad"),
    "following the sender's clock": (SenderClock, "follow"),
    "setting the size": (BufferGate, "_set_caps"),
    "making the connection": (select, "make_connection"),
    "opening the connection": (source.GstSource, "open"),
    "opening FFmpeg's": (pyav, "Decoder"),
}
FURTHER = pytest.mark.slow_but(reason="further steps and sounds: the first row of each test is quick")
GSTREAMER_STEPS = [name for name in STEPS if "FFmpeg" not in name]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    clip = write_clip(tmp_path_factory.mktemp("clips") / "a.h264", count=240, b_frames=2)
    mounts = {
        f"/{'before' if is_first else 'behind'}_{sound}": RtspMount(
            str(clip), launch=with_sound("h264", sound, is_first=is_first)
        )
        for sound in SOUNDS
        for is_first in (False, True)
    }
    with RtspServer(mounts) as made:
        yield made


@pytest.fixture
def slowed(request, monkeypatch):
    """The step takes half a second: a part of it before what it does, and a part behind."""
    place, name = STEPS[request.param]
    quick, begun = getattr(place, name), threading.Event()

    def slow(*arguments, **more):
        begun.set()
        time.sleep(0.2)
        try:
            return quick(*arguments, **more)
        finally:
            time.sleep(0.3)

    monkeypatch.setattr(place, name, slow)
    return begun


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("slowed", GSTREAMER_STEPS, indirect=True)
@FURTHER
def test_a_camera_with_sound_comes_up_at_once_however_slow_a_step_is(server, slowed, where):
    with Viewer(server.url(f"/{where}_aac")) as viewer:
        viewer.await_frames(10)
        assert slowed.is_set() or viewer.headers  # libav is listened to once in a process

    assert viewer.states == UP_AT_ONCE


@pytest.mark.parametrize("slowed", STEPS, indirect=True)
@FURTHER
def test_a_camera_that_is_closed_within_a_step_ends_for_good(server, slowed, request, monkeypatch):
    connections, states, make = [], [], select.make_connection

    def remembered(*arguments, **more):
        connections.append(make(*arguments, **more))
        return connections[-1]

    monkeypatch.setattr(select, "make_connection", remembered)
    decoder = "pyav" if "FFmpeg" in request.node.callspec.params["slowed"] else "software"
    config = StreamConfig(id="a", uri=server.url("/before_aac"), decoder=decoder)
    camera = select.make_source(
        config, preprocess=CANVAS, base_dir=Path("/"), on_status=lambda status: states.append(status.state)
    )
    slowed.clear()  # the elements have been tried

    def live() -> None:
        with contextlib.suppress(SourceError):
            camera.open()
            while True:
                camera.read(0.2)

    reader = threading.Thread(target=live)
    reader.start()
    slowed.wait(3.0)
    before = len(states)  # a server that refuses is down: what is meant is that closing is not told as that
    watch = QuietWatch()
    camera.close()
    closed_s = watch.seconds()
    reader.join(60)

    assert not reader.is_alive()
    assert closed_s < 3.0
    assert not has_stuck_threads()
    assert StreamState.DOWN not in states[before:]
    if decoder == "software":
        assert {one.pipeline.get_state(0).state for one in connections} <= {load().gst.State.NULL}


@pytest.mark.slow(reason="ten times four connections")
def test_four_cameras_with_sound_start_at_once_on_a_busy_machine(server):
    with busy(os.cpu_count() or 1):
        for _ in range(10):
            assert start_at_once(server, [f"/{where}_{sound}" for where, sound in FOUR]) == [UP_AT_ONCE] * 4


@pytest.mark.parametrize("where", ["before", "behind"])
def test_cameras_with_every_sound_start_at_once(server, where):
    assert start_at_once(server, [f"/{where}_{sound}" for sound in SOUNDS]) == [UP_AT_ONCE] * len(SOUNDS)


@pytest.mark.parametrize("sound", SOUNDS)
@FURTHER
def test_two_read_one_camera_with_sound(server, sound):
    with Viewer(server.url(f"/behind_{sound}")) as first:
        first.await_frames(3)
        assert start_at_once(server, [f"/behind_{sound}"]) == [UP_AT_ONCE]
        first.await_frames(3)

    assert first.states == UP_AT_ONCE


def start_at_once(server, paths: list[str]) -> list[list[StreamState]]:
    """Return through what states cameras have gone until each has given frames."""
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(Viewer(server.url(path))) for path in paths]
        for viewer in viewers:
            viewer.await_frames(3)
    return [viewer.states for viewer in viewers]
