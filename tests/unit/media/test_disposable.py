"""Pictures that nobody refers to, in streams of real encoders: without them all others decode to the same bits."""

from __future__ import annotations

import av
import pytest

from edge.media.disposable import Disposable
from tests.support.clips import write_clip

STREAMS = {
    "h264": ("libx264", {"b_frames": 2}),
    "h265": ("libx265", {"x265": "bframes=2:b-pyramid=0"}),
    "h265 pyramid": ("libx265", {"x265": "bframes=4:b-pyramid=1"}),
    "h265 layers": ("libx265", {"x265": "bframes=3:b-pyramid=1:temporal-layers=2"}),
}
FORMS = {"lengths": ".mp4", "start codes": None}


def read(path):
    """Return the packets of a file, its codec data, and the name of its codec."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [bytes(packet) for packet in container.demux(stream) if packet.size]
        return packets, stream.codec_context.extradata, stream.codec_context.name


def decoded(packets, extradata, codec):
    context = av.CodecContext.create(codec, "r")
    if extradata:
        context.extradata = extradata
    frames = [frame for packet in packets for frame in context.decode(av.Packet(packet))]
    return [frame.to_ndarray().tobytes() for frame in [*frames, *context.decode(None)]]


def clip(folder, stream, form, **changes):
    codec, options = STREAMS[stream]
    suffix = FORMS[form] or f".{stream.split()[0]}"
    return write_clip(folder / f"clip{suffix}", count=40, codec=codec, gop=20, **(options | changes))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", STREAMS)
def test_without_them_all_others_decode_to_the_same_bits(tmp_path, stream, form):
    packets, extradata, codec = read(clip(tmp_path, stream, form))
    disposable = Disposable(stream.split()[0], extradata if form == "lengths" else None)

    kept = [packet for packet in packets if not disposable.takes(packet)]

    whole, left = decoded(packets, extradata, codec), decoded(kept, extradata, codec)
    assert len(whole) == len(packets) == 40
    assert len(packets) - len(kept) >= 8
    assert len(left) == len(kept)
    assert set(left) <= set(whole)


@pytest.mark.parametrize(("codec", "options"), [("libx264", {}), ("libx265", {"x265": "bframes=0"})])
def test_where_each_picture_refers_to_the_one_before_none_is_disposable(tmp_path, codec, options):
    name = "h264" if codec == "libx264" else "h265"
    packets, _, _ = read(write_clip(tmp_path / f"clip.{name}", codec=codec, **options))
    disposable = Disposable(name, None)

    assert [disposable.takes(packet) for packet in packets] == [False] * len(packets)


def test_what_does_not_reach_to_a_slice_says_nothing():
    message = b"\0\0\0\1\x06" + bytes(range(1, 200))  # SEI of H.264

    assert Disposable("h264", None).takes(message) is None
    assert Disposable("h264", None).takes(b"") is None
    assert Disposable("h264", None).takes(message + b"\0\0\1\x01\x9a\x00") is True
    assert Disposable("h264", None).takes(message + b"\0\0\1\x41\x9a\x00") is False


def test_of_h265_nothing_is_left_out_before_its_layers_are_known():
    picture, parameters = b"\0\0\1\x00\x01\xd0", b"\0\0\1\x42\x01\x01"  # TRAIL_N; SPS of one layer
    disposable = Disposable("h265", None)

    assert disposable.takes(picture) is False
    assert disposable.takes(parameters + picture) is True
    assert disposable.takes(picture) is True


@pytest.mark.parametrize("data", [b"", b"\1", b"\1" * 22, b"\xff" * 30])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_nonsense_is_not_left_out(codec, data):
    disposable = Disposable(codec, data)

    for picture in (b"", b"\0", b"\xff" * 50, b"\0\0\0\5\xff"):
        assert not disposable.takes(picture)
