"""Frames left out of real streams, and back: rates, and counts that balance."""

import itertools
import time

import pytest

from edge.config.schema import StreamConfig
from edge.media.rate import Cap
from edge.media.select import make_source
from edge.types import DropReason
from tests.support.clips import CANVAS, number_of, write_clip
from tests.support.rtsp import RtspMount, RtspServer

pytestmark = pytest.mark.slow_but(
    "test_a_cap_lets_frames_go_behind_the_decoder_and_counts_them", reason="further clips and cameras"
)

CODECS = {"h264": ("libx264", {"b_frames": 2}), "h265": ("libx265", {"x265": "bframes=2:b-pyramid=0"})}
DEADLINE_S = 60.0


@pytest.fixture(params=CODECS)
def camera(request, tmp_path):
    codec, options = CODECS[request.param]
    clip = write_clip(tmp_path / f"clip.{request.param}", count=60, codec=codec, gop=30, **options)
    cap = Cap()
    with RtspServer({"/a": RtspMount(str(clip), request.param)}) as server:
        config = StreamConfig(id="a", uri=server.url("/a"), decoder="software")
        source = make_source(config, preprocess=CANVAS, base_dir=tmp_path, cap=cap)
        source.open()
        yield source, cap
        source.close()


def frames_until(source, is_over):
    """Return the frames that come until then, without their pixels, and the numbers in their pictures."""
    headers, numbers, ends_at_s = [], [], time.monotonic() + DEADLINE_S
    while not is_over(headers):
        assert time.monotonic() < ends_at_s, source.counts()
        frame = source.read(0.2)
        if frame is not None:
            headers.append(frame.header)
            numbers.append(number_of(frame.image))
    return headers, numbers


def gaps_ms(headers):
    return [(after.pts_ns - before.pts_ns) / 1e6 for before, after in itertools.pairwise(headers)]


def test_a_cap_lets_frames_go_behind_the_decoder_and_counts_them(camera):
    source, cap = camera
    frames_until(source, lambda headers: len(headers) >= 10)

    cap.max_fps = 10.0
    headers, _ = frames_until(source, lambda headers: len(headers) >= 15)

    assert min(gaps_ms(headers[2:])) >= 70
    capped = source.counts().dropped[DropReason.CAPPED]
    assert capped >= 20
    cap.max_fps = None
    headers, _ = frames_until(source, lambda headers: len(headers) >= 20)
    assert sorted(gaps_ms(headers[3:]))[8] < 40
    source.close()
    after = source.counts()
    assert after.dropped[DropReason.CAPPED] - capped <= 4
    assert after.skipped == 0


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_counts_balance_with_a_cap(tmp_path, decoder):
    clip = write_clip(tmp_path / "clip.mp4", count=60)
    cap = Cap(10.0)
    config = StreamConfig(id="a", uri=str(clip), realtime=True, loop=True, decoder=decoder)
    source = make_source(config, preprocess=CANVAS, base_dir=tmp_path, cap=cap)
    source.open()

    headers, _ = frames_until(source, lambda headers: len(headers) >= 8)
    source.close()

    counts = source.counts()
    assert counts.decoded == len(headers) + sum(counts.dropped.values())
    assert counts.dropped[DropReason.CAPPED] >= 10


def test_a_file_that_waits_for_its_reader_loses_nothing(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", count=30)
    cap = Cap(1.0)
    source = make_source(
        StreamConfig(id="a", uri=str(clip), decoder="software"), preprocess=CANVAS, base_dir=tmp_path, cap=cap
    )
    source.open()

    _, numbers = frames_until(source, lambda headers: len(headers) >= 30)
    source.close()

    assert numbers == list(range(30))
