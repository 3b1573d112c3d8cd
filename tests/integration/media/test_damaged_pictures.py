"""What was decoded without a clean key frame, or out of damaged data, is not given out: real streams, both decoders."""

from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.deadline import Deadline
from edge.errors import EndOfStream
from edge.media.select import make_source
from edge.types import DropReason, SourceCounts, StreamState
from tests.support.clips import (
    CANVAS,
    cut_packet,
    number_of,
    signature_in,
    spoil_packets,
    write_clip,
    write_signed_clip,
)
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.tcp_proxy import CuttingProxy
from tests.support.viewer import Viewer, assert_balances
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(reason="further clips and cameras: the first row of each test is quick")
GOP, LENGTH = 160, 320  # seconds from the middle of a group to its end, in which a camera is joined
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
CODECS = pytest.mark.parametrize("codec", ["h264", "h265"])


@pytest.fixture(scope="module")
def long_gops(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("clips")
    return {
        "h264": str(write_clip(folder / "a.h264", count=LENGTH, gop=GOP)),
        "h265": str(write_clip(folder / "a.hevc", codec="libx265", count=LENGTH, gop=GOP, x265="bframes=0")),
    }


@CODECS
@BOTH
@pytest.mark.slow(reason="waits for key frames")
def test_camera_that_is_joined_between_two_key_frames_gives_nothing_before_the_next_one(long_gops, codec, decoder):
    mount = RtspMount(long_gops[codec], codec)
    with RtspServer({"/a": mount}) as server, Viewer(server.url("/a")) as first:
        first.await_frames(5)
        wait_until(lambda: 15 < first.codes[-1] % GOP < 40, what="the middle between two key frames")
        with Viewer(server.url("/a"), decoder=decoder) as late:
            late.await_frames(30)

    # The picture carries its number: a smeared one shows another, and what comes first is a key frame (or, where this
    # machine is slow, one of the few after it).
    assert late.codes[0] % GOP < 10
    assert late.wrong_codes(LENGTH) == []
    assert late.source.counts().dropped[DropReason.DAMAGED] > 10
    assert late.states[-1] is StreamState.UP
    assert_balances(late)


@pytest.mark.slow(reason="waits for key frames of a stream")
def test_camera_with_far_apart_key_frames_is_not_given_up_for_them(long_gops, monkeypatch):
    """It would be joined between two key frames again, and never give anything."""
    monkeypatch.setattr("edge.media.select._FIRST_FRAME_S", 0.5)
    mount = RtspMount(long_gops["h264"], "h264")
    with RtspServer({"/a": mount}) as server, Viewer(server.url("/a")) as first:
        first.await_frames(5)
        wait_until(lambda: 10 < first.codes[-1] % GOP < 25, what="the middle between two key frames")
        with Viewer(server.url("/a"), stall_s=0.4) as late:
            late.await_frames(10)

    assert late.source.reconnects == 0


@BOTH
@pytest.mark.parametrize("number", [40, 30], ids=["predicted", "key frame"])
def test_a_picture_that_lacks_its_end_is_not_given_out_wherever_it_is_cut(tmp_path, decoder, number):
    """Where a slice ends as if it were whole, a decoder makes up the rest and calls nothing an error."""
    whole = write_clip(tmp_path / "whole.h264", count=60, gop=30).read_bytes()
    for cut_bytes in (1, 2, 5, 8, 12, 20, 40, 60):
        clip = tmp_path / f"{cut_bytes}.h264"
        clip.write_bytes(whole)
        cut_packet(clip, number, cut_bytes)

        codes, counts = read_all(clip, decoder)

        assert max(codes) < number, cut_bytes
        assert counts.dropped[DropReason.DAMAGED] >= 60 - number, cut_bytes


@BOTH
def test_after_damage_nothing_is_given_out_until_the_next_key_frame(tmp_path, decoder):
    clip = write_clip(tmp_path / "a.h264", count=90, gop=30)
    spoil_packets(clip, {40, 45})

    codes, counts = read_all(clip, decoder)

    # At a file's pace a frame or two before the damage may be let go, since a decoder is ahead of its output.
    assert [code for code in codes if code < 37 or code >= 40] == [*range(37), *range(60, 90)]
    assert counts.errors > 0
    assert counts.decoded == len(codes) + counts.dropped[DropReason.DAMAGED] == 90


@CODECS
@pytest.mark.slow(reason="waits for key frames")
def test_f40_packets_that_are_lost_on_the_way_cost_the_rest_of_the_group(long_gops, codec):
    mount = RtspMount(long_gops[codec], codec, loses=(20, 185))
    with RtspServer({"/a": mount}) as server, Viewer(server.url("/a"), stall_s=10) as viewer:
        viewer.await_frames(30)
        wait_until(lambda: 165 <= viewer.codes[-1] <= 180, what="the second group")
        viewer.await_frames(40)

    assert viewer.wrong_codes(LENGTH) == []
    assert not {*range(22, GOP), *range(187, LENGTH)} & set(viewer.codes)
    assert viewer.source.counts().dropped[DropReason.DAMAGED] > 50
    assert_balances(viewer)


@BOTH
def test_f40_a_picture_whose_end_is_lost_is_not_taken_for_whole(tmp_path, decoder):
    """Of a picture of several slices the first ones are decoded all the same, without a word of the decoder."""
    clip = write_signed_clip(tmp_path / "a.h264", 5, count=60, gop=10)
    assert slices(clip.read_bytes()) >= 2 * 60
    mount = RtspMount(str(clip), "h264", tears=(4, 20, 37))  # the second one is a key frame
    with RtspServer({"/a": mount}) as server:
        pictures, counts = read_on(server.port, decoder, most=60, stall_s=10)

    assert len(pictures) == 60
    assert None not in pictures
    assert not {*range(4, 10), *range(20, 30), *range(37, 40)} & {number for _, number in pictures}
    assert counts.dropped[DropReason.DAMAGED] > 10


def slices(coded: bytes) -> int:
    return sum(part[:1] and part[0] & 31 in (1, 5) for part in coded.split(b"\0\0\1")[1:])


@CODECS
@BOTH
@pytest.mark.promised(reason="no damaged picture is inferred")
def test_f40_a_connection_that_breaks_inside_a_picture_gives_no_half_of_it(tmp_path, codec, decoder):
    """What has come of it is decoded all the same, and looks like a picture."""
    suffix, encoder = ("h264", "libx264") if codec == "h264" else ("hevc", "libx265")
    clip = write_signed_clip(tmp_path / f"a.{suffix}", 5, count=120, size=256, gop=5, codec=encoder)
    with RtspServer({"/a": RtspMount(str(clip), codec, fps=100)}) as server:
        for i in range(6 if decoder == "software" else 3):
            most_bytes = 40_000 + i * 3001
            with CuttingProxy(server.port, most_bytes=most_bytes, is_reset=i % 2 == 1) as link:
                pictures, counts = read_on(link.port, decoder)
            assert len(pictures) > 5
            assert [i for i, one in enumerate(pictures) if one is None] == [], (most_bytes, len(pictures))
            assert counts.decoded == len(pictures) + sum(counts.dropped.values())


def read_on(
    port: int, decoder: str, *, most: int | None = None, **settings: float
) -> tuple[list[tuple[int, int] | None], SourceCounts]:
    """Read so many pictures, or until the connection breaks."""
    states = []
    config = StreamConfig(id="east", uri=f"rtsp://127.0.0.1:{port}/a", latency_ms=50, decoder=decoder, **settings)
    source = make_source(config, preprocess=CANVAS, base_dir=Path("/"), on_status=lambda one: states.append(one.state))
    source.open()
    pictures = []
    deadline = Deadline.after(60)
    while (StreamState.DOWN not in states if most is None else len(pictures) < most) and not deadline.is_over:
        frame = source.read(0.2)
        if frame is not None:
            pictures.append(signature_in(frame.image))
    source.close()
    return pictures, source.counts()


def read_all(path: Path, decoder: str) -> tuple[list[int], SourceCounts]:
    config = StreamConfig(id="clip", uri=str(path), decoder=decoder)
    source = make_source(config, preprocess=CANVAS, base_dir=path.parent)
    source.open()
    codes = []
    try:
        while True:
            frame = source.read(10.0)
            assert frame is not None
            codes.append(number_of(frame.image))
    except EndOfStream:
        pass
    source.close()
    return codes, source.counts()
