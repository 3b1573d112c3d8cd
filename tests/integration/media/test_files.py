"""Real files through the real decoders."""

import contextlib
import itertools
import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.errors import EndOfStream, SourceError
from edge.media.gstreamer.binding import load
from edge.media.select import make_source
from edge.protocols import FrameSource
from edge.types import ImageSize, Preprocess
from edge.vision import boxes
from tests.support.clips import CANVAS, number_of, turn_clip, write_clip

pytestmark = pytest.mark.slow_but(reason="further clips and cameras: the first row of each test is quick")
both = pytest.mark.parametrize("decoder", ["software", "pyav"])


def source_of(path: Path | str, folder: Path = Path("/"), preprocess: Preprocess = CANVAS, **more) -> FrameSource:
    config = StreamConfig(id="lobby", uri=str(path), **more)
    return make_source(config, preprocess=preprocess, base_dir=folder)


def frames_of(source: FrameSource, limit: int = 10_000):
    """Yield frames up to the end, or up to `limit`; then close, and check that the counts balance."""
    source.open()
    taken = 0
    try:
        while taken < limit:
            frame = source.read(5.0)
            assert frame is not None, "no frame in time"
            taken += 1
            yield frame
    except EndOfStream:
        pass
    finally:
        source.close()
    counts = source.counts()
    assert counts.decoded == taken + sum(counts.dropped.values()), counts


@both
@pytest.mark.parametrize(
    ("name", "codec", "b_frames"),
    [
        ("a.mp4", "libx264", 0),
        ("a.mp4", "libx264", 3),  # which come in another order than that of their times
        ("a.mkv", "libx265", 0),
        ("a.h264", "libx264", 0),
        ("a.avi", "mjpeg", 0),
        ("a.mov", "mjpeg", 0),
        ("a.avi", "mpeg4", 0),
        ("a.webm", "libvpx", 0),
        ("a.ts", "libx264", 0),
    ],
)
def test_every_frame_is_delivered_exactly_once(tmp_path, decoder, name, codec, b_frames):
    path = write_clip(tmp_path / name, codec=codec, count=40, b_frames=b_frames)

    seen = [(frame.header.frame, number_of(frame.image)) for frame in frames_of(source_of(path, decoder=decoder))]

    assert seen == [(i + 1, i) for i in range(40)]


def test_slow_reader_of_a_file_loses_nothing(tmp_path):
    path = write_clip(tmp_path / "a.mp4", count=20)
    seen = []
    for frame in frames_of(source_of(path)):
        threading.Event().wait(0.02)  # the reader is busy for longer than a frame takes to decode
        seen.append(number_of(frame.image))

    assert seen == list(range(20))


@both
@pytest.mark.parametrize(("width", "height"), [(854, 480), (638, 360), (360, 640), (1280, 720), (64, 48)])
def test_sizes_and_their_strides(tmp_path, decoder, width, height):
    path = write_clip(tmp_path / "a.mp4", count=8, width=width, height=height)
    size = ImageSize(width=width, height=height)

    for i, frame in enumerate(frames_of(source_of(path, decoder=decoder))):
        assert frame.header.source_size == size
        assert frame.letterbox == boxes.fit(size, CANVAS)
        assert frame.image.shape[:2] == (frame.letterbox.fitted.height, frame.letterbox.fitted.width)
        assert number_of(frame.image) == i


def test_odd_width_from_a_codec_that_has_it(tmp_path):
    if load().gst.version() < (1, 22):
        pytest.skip("jpegdec of GStreamer 1.20 takes no odd width")
    path = write_clip(tmp_path / "a.avi", codec="mjpeg", count=8, width=853, height=480)

    for i, frame in enumerate(frames_of(source_of(path))):
        assert frame.header.source_size == ImageSize(width=853, height=480)
        assert number_of(frame.image) == i


def test_fitted_width_that_needs_padded_rows(tmp_path):
    path = write_clip(tmp_path / "a.mp4", count=4, width=360, height=640)
    odd = Preprocess(size=ImageSize(width=319, height=319))

    frames = list(frames_of(source_of(path, preprocess=odd)))

    assert frames[0].image.shape == (319, 179, 3)
    assert frames[0].image.strides[0] > 179 * 3
    # The views hold their buffers, so even frames that were read long ago show what they showed.
    assert [number_of(frame.image) for frame in frames] == [0, 1, 2, 3]


@both
def test_names_with_blanks_quotes_hashes_and_umlauts(tmp_path, decoder):
    folder = tmp_path / 'it\'s "here" #1 ü ! fakesink'
    folder.mkdir()
    write_clip(folder / "clip one.mp4", count=3)

    for uri in ("clip one.mp4", f"file://{folder}/clip one.mp4", (folder / "clip one.mp4").as_uri()):
        assert len(list(frames_of(source_of(uri, folder, decoder=decoder)))) == 3


@both
@pytest.mark.parametrize("name", ["sizes", "same-fit"])
def test_resolution_that_changes_in_mid_stream(tmp_path, decoder, name):
    """The second part fits into another size, or, harder, into the very same one."""
    second = {"sizes": (180, 320), "same-fit": (640, 360)}[name]
    parts = [(320, 180, 0), (*second, 20), (320, 180, 40)]
    clips = [
        write_clip(tmp_path / f"{i}.h264", count=20, width=width, height=height, first=first)
        for i, (width, height, first) in enumerate(parts)
    ]
    both_parts = tmp_path / "a.h264"
    both_parts.write_bytes(b"".join(clip.read_bytes() for clip in clips))

    seen = [
        (number_of(frame.image), frame.header.source_size, frame.letterbox)
        for frame in frames_of(source_of(both_parts, decoder=decoder))
    ]

    expected = []
    for width, height, first in parts:
        size = ImageSize(width=width, height=height)
        expected += [(first + i, size, boxes.fit(size, CANVAS)) for i in range(20)]
    assert seen == expected


@both
@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", "libx264"), ("a.h264", "libx264"), ("a.avi", "mpeg4"), ("a.ts", "libx264")]
)
def test_loop_has_every_frame_of_every_pass(tmp_path, capfd, decoder, name, codec):
    path = write_clip(tmp_path / name, codec=codec, count=30)

    source = source_of(path, decoder=decoder, loop=True)
    frames = [
        (frame.header.frame, number_of(frame.image), frame.header.pts_ns) for frame in frames_of(source, limit=95)
    ]

    # Six frames may wait inside.
    assert source.counts().decoded <= 95 + 6

    assert [number for number, _, _ in frames] == list(range(1, 96))
    assert [number for _, number, _ in frames] == [i % 30 for i in range(95)]
    assert "CRITICAL" not in capfd.readouterr().err  # of a sink that is flushed while its reader holds a frame
    gaps = np.diff([pts_ns for _, _, pts_ns in frames])
    assert gaps.min() > 0
    assert gaps.max() < 1.3 * np.median(gaps)


@both
@pytest.mark.parametrize("name", ["a.mp4", "a.ts"])
def test_realtime_loop_keeps_its_pace_over_the_seam(tmp_path, decoder, name):
    path = write_clip(tmp_path / name, count=30)
    arrivals, numbers, codes = [], [], []
    for frame in frames_of(source_of(path, decoder=decoder, loop=True, realtime=True), limit=95):
        arrivals.append(time.monotonic())
        numbers.append(frame.header.frame)
        codes.append(number_of(frame.image))

    # On a busy machine a reader may be late for a frame: what is left is in order, and what is missing was counted
    # (a number may lag behind by the frames that wait inside).
    steps = np.diff(codes) % 30
    assert len(codes) == 95
    assert steps.min() >= 1
    assert abs(steps.sum() - (numbers[-1] - numbers[0])) <= 4
    assert numbers == sorted(set(numbers))
    assert sum(later < earlier for earlier, later in itertools.pairwise(codes)) >= 3  # more where frames are left out
    # What a new beginning costs adds up, unless it is made good; the least late frame of a loop waited for no CPU.
    late_s = np.array(arrivals) - np.cumsum([0, *steps]) / 30
    assert abs(late_s[-30:].min() - late_s[:30].min()) < 0.05


@both
def test_one_frame_clip_is_read_and_looped(tmp_path, decoder):
    path = write_clip(tmp_path / "a.mp4", count=1)

    assert len(list(frames_of(source_of(path, decoder=decoder)))) == 1
    assert len(list(frames_of(source_of(path, decoder=decoder, loop=True), limit=10))) == 10


@both
@pytest.mark.parametrize("name", ["gone.mp4", "x" * 5000], ids=["gone", "too long"])
def test_file_that_is_not_there_is_a_permanent_error(decoder, tmp_path, name):
    with pytest.raises(SourceError, match="there is no such file") as caught:
        source_of(tmp_path / name, decoder=decoder).open()

    assert caught.value.is_permanent


@pytest.mark.parametrize(("is_sought", "told"), [(False, "cannot be looped"), (True, r"0\.5 s")])
def test_file_that_is_not_sought_back_or_is_stuck_then_is_an_error_and_not_silence(
    tmp_path, monkeypatch, is_sought, told
):
    monkeypatch.setattr("edge.media.camera.FILE_SILENCE_S", 0.5)
    monkeypatch.setattr(load().gst.Element, "seek_simple", lambda *_: is_sought)  # and nothing comes of it
    path = write_clip(tmp_path / "a.mp4", count=30)
    with pytest.raises(SourceError, match=told) as caught:
        list(frames_of(source_of(path, decoder="software", loop=True), limit=100))

    assert caught.value.is_permanent


@both
def test_max_fps_of_a_file_is_counted(tmp_path, decoder):
    path = write_clip(tmp_path / "a.mp4", count=60)

    seen = [number_of(frame.image) for frame in frames_of(source_of(path, decoder=decoder, max_fps=7.5))]

    assert seen == list(range(0, 60, 4))


@both
@pytest.mark.parametrize(
    "content", [b"", b"this is a text file\n" * 100, bytes(range(256)) * 40], ids=["empty", "text", "noise"]
)
def test_file_that_is_no_video_is_a_permanent_error(tmp_path, decoder, content):
    path = tmp_path / "a.mp4"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        list(frames_of(source_of(path, decoder=decoder)))

    assert not isinstance(caught.value, EndOfStream)
    assert caught.value.is_permanent
    assert str(path) in str(caught.value)


@both
@pytest.mark.parametrize("is_looped", [False, True])
def test_mp4_without_its_index_is_a_permanent_error(tmp_path, decoder, is_looped):
    path = write_clip(tmp_path / "a.mp4", count=30)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"moov") - 4])
    with pytest.raises(SourceError) as caught:
        list(frames_of(source_of(path, decoder=decoder, loop=is_looped), limit=100))

    assert not isinstance(caught.value, EndOfStream)
    assert caught.value.is_permanent


@both
def test_damage_in_the_middle_does_not_end_the_file(tmp_path, decoder):
    path = write_clip(tmp_path / "a.mp4", count=90, gop=10, width=640, height=360)
    data = bytearray(path.read_bytes())
    begin = data.index(b"mdat") + len(data) // 3
    noise = np.random.default_rng(1).integers(0, 256, 4000, np.uint8).tobytes()
    data[begin : begin + len(noise)] = noise
    path.write_bytes(data)
    source = source_of(path, decoder=decoder)
    seen = [number_of(frame.image) for frame in frames_of(source)]

    assert seen[:10] == list(range(10))
    assert seen[-10:] == list(range(80, 90))
    assert source.counts().errors > 0


@both
@pytest.mark.parametrize("is_looped", [False, True])
def test_clip_without_a_single_good_frame_does_not_spin(tmp_path, decoder, is_looped):
    path = write_clip(tmp_path / "a.mp4", count=30)
    data = bytearray(path.read_bytes())
    begin, end = data.index(b"mdat") + 4, data.index(b"moov") - 4
    data[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(str(path))) as caught:
        list(frames_of(source_of(path, decoder=decoder, loop=is_looped), limit=5))

    assert not isinstance(caught.value, EndOfStream)


def test_memory_of_frames_is_given_back(tmp_path):
    path = write_clip(tmp_path / "a.mp4", count=30)
    large = Preprocess(size=ImageSize(width=960, height=960))  # 1.5 MB for each frame
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident = []
    for frame in frames_of(source_of(path, loop=True, preprocess=large), limit=300):
        assert frame.image.size > 1_500_000
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * page_bytes)

    assert resident[-1] - resident[20] < 60e6


@both
def test_file_that_was_cut_off_gives_what_is_there(tmp_path, decoder):
    path = write_clip(tmp_path / "a.mkv", count=60, width=640, height=360)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    seen = []
    with contextlib.suppress(SourceError):  # whether a cut is an error or just the end is up to the demuxer
        for frame in frames_of(source_of(path, decoder=decoder)):
            seen.append(number_of(frame.image))

    assert len(seen) > 10
    assert seen[:-1] == list(range(len(seen) - 1))


def silence(av, made, tone):
    """Write a second of it."""
    for i in range(48):
        piece = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        piece.sample_rate, piece.pts = 48000, i * 1024
        for packet in tone.encode(piece):
            made.mux(packet)


def test_video_with_sound_is_read(tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "a.mp4"
    video = write_clip(tmp_path / "v.mp4", count=30)
    with av.open(str(video)) as given, av.open(str(path), "w") as made:
        tone = made.add_stream("aac", rate=48000)
        copy = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.dts is not None:
                packet.stream = copy
                made.mux(packet)
        silence(av, made, tone)

    for loop, limit in ((False, 10_000), (True, 75)):
        seen = [number_of(frame.image) for frame in frames_of(source_of(path, loop=loop), limit=limit)]
        assert seen == [i % 30 for i in range(75 if loop else 30)]


def test_sound_without_video_is_a_clear_error(tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as made:
        tone = made.add_stream("aac", rate=48000)
        silence(av, made, tone)
    for decoder in ("software", "pyav"):
        with pytest.raises(SourceError, match="there is no video in it") as caught:
            list(frames_of(source_of(path, decoder=decoder)))
        assert caught.value.is_permanent


@both
@pytest.mark.parametrize("turn_deg", [0, 90, 180, 270])
def test_a_clip_that_players_turn_is_taken_as_coded_and_said_once_to_be(tmp_path, caplog, decoder, turn_deg):
    turn_clip(write_clip(tmp_path / "phone.mp4", count=20), turn_deg)
    source = source_of("phone.mp4", tmp_path, decoder=decoder, loop=True)

    frames = [number_of(frame.image) for frame in frames_of(source, limit=50)]

    assert frames[:20] == list(range(20)), "numbers are read right from pictures as they were coded only"
    said = [record.getMessage() for record in caplog.records if "turn_deg" in record.getMessage()]
    assert [re.search(r"stream=lobby turn_deg=(\d+)", line)[1] for line in said] == [str(turn_deg)] * (turn_deg > 0)
