"""What every `FrameSource` promises, over all implementations."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.errors import EndOfStream, SourceError
from edge.media.address import parse_address
from edge.media.camera import Camera
from edge.media.ffmpeg.source import PyavSource
from edge.media.gstreamer.source import GstSource
from edge.media.select import make_source
from edge.protocols import FrameSource
from edge.types import DropReason, ImageSize, StreamId
from edge.vision.boxes import fit
from tests.support.clips import CANVAS, number_of, numbered, numbered_pictures, write_clip
from tests.support.rtsp import require_gstreamer
from tests.support.service_parts import RecordedSource

COUNT, WIDTH, HEIGHT = 12, 320, 180
ID = StreamId("gate-east")
Maker = Callable[[Path], FrameSource]


def _config(**more) -> StreamConfig:
    return StreamConfig(id=ID, uri="clip.mp4", **more)


def _recorded(_folder: Path) -> FrameSource:
    return RecordedSource(ID, numbered_pictures(COUNT, width=WIDTH, height=HEIGHT), preprocess=CANVAS)


def _gst(folder: Path) -> FrameSource:
    require_gstreamer("parsebin", "avdec_h264", "capssetter")
    write_clip(folder / "clip.mp4", count=COUNT)
    address = parse_address("clip.mp4", base_dir=folder)
    return GstSource(_config(), address, preprocess=CANVAS, is_nvmm=False)


def _pyav(folder: Path) -> FrameSource:
    write_clip(folder / "clip.mp4", count=COUNT)
    return PyavSource(_config(), parse_address("clip.mp4", base_dir=folder), preprocess=CANVAS)


def _camera(folder: Path) -> FrameSource:
    return Camera(ID, lambda: _recorded(folder), is_live=False, is_endless=False, stall_s=3.0)


def _limited(folder: Path) -> FrameSource:
    return Camera(ID, lambda: _recorded(folder), is_live=False, is_endless=False, stall_s=3.0, max_fps=1000)


def _selected(folder: Path) -> FrameSource:
    write_clip(folder / "clip.mp4", count=COUNT)
    return make_source(_config(), preprocess=CANVAS, base_dir=folder)


FINITE = [_recorded, _gst, _pyav, _camera, _limited, _selected]


def _live_recorded(_folder: Path) -> FrameSource:
    endless = (numbered(i % 256, width=WIDTH, height=HEIGHT) for i in iter(int, 1))
    return RecordedSource(ID, endless, preprocess=CANVAS, fps=60, is_live=True)


def _live_gst(folder: Path) -> FrameSource:
    require_gstreamer("videotestsrc", "capssetter")
    config = StreamConfig(id=ID, uri=f"test://?pattern=ball&width={WIDTH}&height={HEIGHT}&fps=60")
    return GstSource(config, parse_address(config.uri, base_dir=folder), preprocess=CANVAS, is_nvmm=False)


def _live_pyav(folder: Path) -> FrameSource:
    write_clip(folder / "clip.mp4", count=COUNT, fps=60)
    config = _config(loop=True, realtime=True)
    return PyavSource(config, parse_address("clip.mp4", base_dir=folder), preprocess=CANVAS)


def _live_gst_file(folder: Path) -> FrameSource:
    require_gstreamer("parsebin", "avdec_h264", "capssetter")
    write_clip(folder / "clip.mp4", count=COUNT, fps=60)
    address = parse_address("clip.mp4", base_dir=folder)
    return GstSource(_config(loop=True, realtime=True), address, preprocess=CANVAS, is_nvmm=False)


def _live_camera(folder: Path) -> FrameSource:
    return Camera(ID, lambda: _live_recorded(folder), is_live=True, is_endless=True, stall_s=3.0)


LIVE = [_live_recorded, _live_gst, _live_gst_file, _live_pyav, _live_camera]


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path):
    made = request.param(tmp_path)
    yield made
    made.close()


finite = pytest.mark.parametrize("source", FINITE, indirect=True)
live = pytest.mark.parametrize("source", LIVE, indirect=True)
every = pytest.mark.parametrize("source", [*FINITE, *LIVE], indirect=True)


def read_one(source: FrameSource, timeout_s: float = 5.0):
    frame = source.read(timeout_s)
    assert frame is not None, "no frame in time"
    return frame


def assert_balances(source: FrameSource, taken: int) -> None:
    counts = source.counts()
    assert counts.decoded == taken + sum(counts.dropped.values()), counts


@finite
def test_finite_source_gives_every_frame_once_and_in_order(source):
    source.open()
    frames = [read_one(source) for _ in range(COUNT)]

    # Images of sources that reuse memory are only looked at while they are valid; see the next test.
    assert [frame.header.frame for frame in frames] == list(range(1, COUNT + 1))
    times = [frame.header.pts_ns for frame in frames]
    assert times == sorted(set(times))
    with pytest.raises(EndOfStream):
        source.read(5.0)
    source.close()
    assert source.counts().decoded == COUNT
    assert_balances(source, COUNT)


@finite
def test_finite_source_shows_the_pictures_that_were_put_in(source):
    source.open()
    seen = [number_of(read_one(source).image) for _ in range(COUNT)]

    assert seen == list(range(COUNT))


@every
def test_frame_is_fitted_rgb_and_says_where_it_lies(source):
    source.open()
    frame = read_one(source)

    size = ImageSize(width=WIDTH, height=HEIGHT)
    assert frame.header.stream == source.stream == StreamId("gate-east")
    assert frame.header.source_size == size
    assert frame.letterbox == fit(size, CANVAS)
    assert frame.image.dtype == np.uint8
    assert frame.image.shape == (frame.letterbox.fitted.height, frame.letterbox.fitted.width, 3)
    assert frame.header.decode_ns >= 0
    assert abs(frame.header.captured_at_ns - time.time_ns()) < 5e9
    assert frame.header.read_at_ns <= time.monotonic_ns()


@every
def test_source_that_is_closed_early_balances_its_counts(source):
    source.open()
    for _ in range(3):
        read_one(source)
    source.close()
    source.close()

    assert_balances(source, 3)
    with pytest.raises(SourceError):
        source.read(0.1)


@every
def test_close_before_open_is_allowed(source):
    source.close()


@every
def test_close_wakes_a_reader_in_another_thread(source):
    source.open()
    read_one(source)
    woken = threading.Event()

    def read_to_the_end() -> None:
        try:
            while source.read(300.0) is not None:
                pass
        except SourceError:
            pass
        woken.set()

    reader = threading.Thread(target=read_to_the_end)
    reader.start()
    source.close()
    assert woken.wait(60)
    reader.join()


@live
def test_live_source_says_so_and_keeps_its_pace(source):
    assert source.is_live
    opened_s = time.monotonic()
    source.open()
    first = read_one(source)
    begun_s = time.monotonic()
    for _ in range(30):
        last = read_one(source)

    now_s = time.monotonic()
    assert now_s - begun_s > 0.35  # 30 frames at 60 fps
    assert 0.35 < (last.header.pts_ns - first.header.pts_ns) / 1e9 < now_s - opened_s  # no later moment than now


@live
def test_live_source_lets_old_frames_go_under_a_slow_reader(source):
    source.open()
    numbers, taken = [], 0
    until_s = time.monotonic() + 60
    while source.counts().dropped.get(DropReason.LATE, 0) <= 10:
        assert time.monotonic() < until_s
        numbers.append(read_one(source).header.frame)
        taken += 1
        threading.Event().wait(0.1)  # the reader is busy for six frame periods: nothing can be waited for
    source.close()

    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= source.counts().decoded
    assert_balances(source, taken)


@live
def test_live_source_returns_none_when_no_frame_is_due(source):
    source.open()
    read_one(source)
    while source.read(0.0) is not None:
        pass
