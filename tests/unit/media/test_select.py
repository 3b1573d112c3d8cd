import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.errors import ConfigError, MissingDependencyError
from edge.media import select
from edge.media.address import parse_address
from edge.media.ffmpeg import binding as pyav
from edge.media.gstreamer import binding as gst
from edge.media.gstreamer.build import PipelineBuilder
from edge.media.select import choose_decoder, look_at, make_source
from edge.types import StreamId
from tests.support.clips import CANVAS, numbered_pictures
from tests.support.rtsp import require_gstreamer
from tests.support.service_parts import RecordedSource

HERE = Path("/srv")


def chosen(uri: str, decoder: str = "auto") -> str:
    stream = StreamConfig(id="a", uri=uri, decoder=decoder)
    return choose_decoder(stream, parse_address(uri, base_dir=HERE))


@pytest.fixture
def machine(monkeypatch):
    def be(*, gstreamer: bool = True, nvmm: bool = False, av: bool = True) -> None:
        monkeypatch.setattr(gst, "is_available", lambda: gstreamer)
        monkeypatch.setattr(gst, "has_factories", lambda names: nvmm or "nvv4l2decoder" not in names)
        monkeypatch.setattr(pyav, "is_available", lambda: av)

    return be


@pytest.mark.parametrize(
    ("has", "uri", "decoder"),
    [
        ({"nvmm": True}, "rtsp://camera/", "nvmm"),
        ({"nvmm": True}, "test://", "software"),
        ({}, "rtsp://camera/", "software"),
        ({"gstreamer": False}, "clip.mp4", "pyav"),
    ],
)
def test_auto_takes_the_best_that_is_installed(machine, has, uri, decoder):
    machine(**has)

    assert chosen(uri) == decoder


def test_nothing_installed_says_what_to_install(machine):
    machine(gstreamer=False, av=False)
    with pytest.raises(MissingDependencyError, match="install GStreamer"):
        chosen("rtsp://camera/")


def test_pyav_does_not_read_devices():
    with pytest.raises(ConfigError, match="decoder pyav reads file, rtsp"):
        chosen("v4l2:///dev/video0", decoder="pyav")


def test_unknown_scheme_is_refused():
    with pytest.raises(ConfigError, match="expected one of rtsp"):
        make_source(StreamConfig(id="a", uri="gopher://x"), preprocess=CANVAS, base_dir=HERE)


def test_missing_gstreamer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gi", None)
    gst._load.cache_clear()
    with pytest.raises(MissingDependencyError, match="python3-gi"):
        gst.load()
    gst._load.cache_clear()


@pytest.mark.parametrize("room", ["gstreamer", "ffmpeg"])
def test_library_is_loaded_once_by_many_threads(room):
    """Unserialised, this fails within a few attempts: gi's modules are half made when the second thread sees them."""
    code = (
        "import sys, threading, builtins\n"
        f"from edge.media.{room} import binding\n"
        "real, inside, most = builtins.__import__, [0], [0]\n"
        "def slow(name, *rest, **more):\n"
        "    is_ours = name in ('gi', 'av') and bool(rest) and rest[0]['__name__'] == binding.__name__\n"
        "    inside[0] += is_ours; most[0] = max(most[0], inside[0])\n"
        "    if is_ours: threading.Event().wait(0.05)\n"
        "    try: return real(name, *rest, **more)\n"
        "    finally: inside[0] -= is_ours\n"
        "builtins.__import__ = slow\n"
        "go, found = threading.Barrier(8), []\n"
        "def load(): go.wait(); found.append(binding.load())\n"
        "threads = [threading.Thread(target=load) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(len(found), len(set(map(id, found))), most[0])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["8", "1", "1"], found.stderr


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_libraries_are_loaded_when_the_source_is_made(decoder):
    code = (
        "import sys; from pathlib import Path; from edge.media.select import make_source\n"
        "from edge.config.schema import StreamConfig; from edge.types import ImageSize, Preprocess\n"
        "canvas = Preprocess(size=ImageSize(width=320, height=320))\n"
        f"make_source(StreamConfig(id='a', uri='a.mp4', decoder='{decoder}'), preprocess=canvas, base_dir=Path('/'))\n"
        "print('av' in sys.modules, 'gi.repository.Gst' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == [str(decoder == "pyav"), str(decoder == "software")]


@pytest.mark.parametrize("decoder", ["nvmm", "auto"])
def test_jetson_elements_are_not_asked_of_apt(decoder):
    if gst.has_factories(["nvarguscamerasrc"]):
        pytest.skip("this is a Jetson")
    uri = "csi://0" if decoder == "auto" else "rtsp://camera/"
    with pytest.raises(MissingDependencyError, match="JetPack") as caught:
        make_source(StreamConfig(id="a", uri=uri, decoder=decoder), preprocess=CANVAS, base_dir=HERE)

    assert "apt install" not in str(caught.value)


@pytest.mark.parametrize("query", ["pattern=nonsense", "width=wide", "fps=0", "colour=red"])
def test_options_of_a_test_address_are_checked_when_the_source_is_made(query):
    with pytest.raises(ConfigError, match="test address: "):
        make_source(StreamConfig(id="a", uri=f"test://?{query}"), preprocess=CANVAS, base_dir=HERE)


def test_cameras_are_not_looked_for_behind_a_desktops_proxy():
    """On Ubuntu 22.04 the library that would be asked ends the process."""
    gst.load()
    code = (
        "from edge.media.gstreamer import binding; binding.load()\n"
        "from gi.repository import Gio; print(Gio.ProxyResolver.get_default().__gtype__.name)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GIO_USE_PROXY_RESOLVER"}

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert found.stdout.split() == ["GDummyProxyResolver"]


def test_of_an_rtsp_cameras_tracks_the_first_video_that_is_read_is_set_up_and_nothing_else(tmp_path):
    require_gstreamer("rtspsrc")
    caps_of = gst.load().gst.Caps.from_string
    uri = "rtsp://127.0.0.1/a"
    builder = PipelineBuilder(StreamConfig(id="a", uri=uri), parse_address(uri, base_dir=tmp_path), is_nvmm=False)
    tracks = ("application VND.ONVIF.METADATA", "audio PCMU", "video MP4V-ES", "video H264", "video H264", "audio OPUS")
    caps = [caps_of("application/x-rtp,media={},encoding-name={}".format(*track.split())) for track in tracks]

    for _ in range(2):  # rtspsrc asks again where it tries another transport
        chosen = [builder._on_select_stream(None, number, one) for number, one in enumerate(caps)]
        assert chosen == [False, False, False, True, False, False]


@pytest.mark.parametrize("end", ["over", "gone"])
def test_first_bytes_of_a_web_camera_that_come_while_it_is_closed_are_let_go_without_a_complaint(tmp_path, capsys, end):
    require_gstreamer("souphttpsrc", "jpegparse", "jpegdec")
    modules, uri = gst.load(), "http://127.0.0.1/video"
    builder = PipelineBuilder(StreamConfig(id="a", uri=uri), parse_address(uri, base_dir=tmp_path), is_nvmm=False)
    pipeline = builder.pipeline
    pad = pipeline.get_by_name("source").get_parent().get_static_pad("src")
    builder.end_callbacks()
    if end == "gone":
        del builder
    pad.set_active(True)
    pad.push_event(modules.gst.Event.new_stream_start("a"))
    segment = modules.gst.Segment()
    segment.init(modules.gst.Format.BYTES)
    pad.push_event(modules.gst.Event.new_segment(segment))

    assert pad.push(modules.gst.Buffer.new_wrapped(b"--frame")) == modules.gst.FlowReturn.OK
    assert capsys.readouterr().err == ""


class SteppedSource(RecordedSource):
    """Whose frames come, and have their times, as they are given: steps in ms."""

    codec, turn_deg = "h264", None

    def __init__(self, arrivals_ms, pts_ms):
        pictures = numbered_pictures(len(arrivals_ms) + 1, width=32, height=32)
        super().__init__(StreamId("a"), pictures, preprocess=CANVAS)
        self.steps = iter([(0, 0), *zip(arrivals_ms, pts_ms, strict=True)])
        self.read_at_ms, self.pts_ms = 0, 0

    @property
    def is_live(self):
        return True

    def read(self, timeout_s):
        frame = super().read(timeout_s)
        arrival_ms, pts_ms = next(self.steps)
        self.read_at_ms, self.pts_ms = self.read_at_ms + arrival_ms, self.pts_ms + pts_ms
        header = replace(frame.header, read_at_ns=round(self.read_at_ms * 1e6), pts_ns=round(self.pts_ms * 1e6))
        return replace(frame, header=header)


@pytest.mark.parametrize(
    ("arrivals_ms", "pts_ms", "fps"),
    [
        ([60, 40] * 30, [50] * 60, 20),  # its own times are the even ones
        ([0] * 30 + [50] * 60, [50] * 90, 20),  # it begins with a burst
        ([50] * 60, [1e-6] * 60, 20),
        ([50] * 60, [25] * 60, 20),
        ([2000], [2000], 0.5),
        ([0] * 30, [1e-6] * 30, None),
    ],
)
def test_rate_of_a_camera_is_counted_whatever_its_times_are(monkeypatch, arrivals_ms, pts_ms, fps):
    monkeypatch.setattr(select, "choose_decoder", lambda *_: "software")
    monkeypatch.setattr(select, "require_decoder", lambda *_: None)
    looked = []

    def make(stream, *_, **__):
        looked.append(stream)
        return SteppedSource(arrivals_ms, pts_ms)

    monkeypatch.setattr(select, "make_connection", make)
    address = parse_address("rtsp://camera/", base_dir=HERE)

    assert look_at(StreamConfig(id="a", uri="rtsp://camera/"), address, within_s=5.0).fps == fps
    assert looked[0].stall_s >= 5.0  # what a source waits for is no shorter than the look
