"""When a key frame heals what was lost: the depayloader is real, the packets and their times are ours."""

import pytest

from edge.media.gstreamer.binding import load
from edge.media.gstreamer.clean import CleanFrames, GstLimit
from tests.support.rtsp import require_gstreamer

RTP = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96"
MS = 1_000_000
BEGIN_MS = 3_600_000  # times below are after this one: none of them fits into 32 bits
KEY = bytes([0x65, 0x88, 0x84, 0x00])  # a slice of a key frame
SLICE = bytes([0x41, 0x9A, 0x00, 0x11])  # of a picture that refers to others


class Connection:
    """A codec section whose packets are pushed by hand, and a decoder whose output is."""

    def __init__(self):
        gst = self.gst = load().gst
        self.bin = gst.parse_launch(
            "rtph264depay name=depay request-keyframe=true ! video/x-h264,stream-format=byte-stream,alignment=au "
            "! identity name=coded ! identity name=keys drop-buffer-flags=delta-unit  "
            "identity name=output ! fakesink async=false sync=false"
        )
        output = self.bin.get_by_name("output")
        self.clean = CleanFrames(self.bin, output, has_marks=False)
        self.bin.set_state(gst.State.PLAYING)
        self.packets = self._source("depay", RTP)
        self.frames = self._source("output", "video/x-raw")
        self.number = 0

    def _source(self, name, caps):
        gst = self.gst
        pad = gst.Pad.new(f"to-{name}", gst.PadDirection.SRC)
        pad.link(self.bin.get_by_name(name).get_static_pad("sink"))
        pad.set_active(True)
        pad.push_event(gst.Event.new_stream_start(name))
        pad.push_event(gst.Event.new_caps(gst.Caps.from_string(caps)))
        segment = gst.Segment()
        segment.init(gst.Format.TIME)
        pad.push_event(gst.Event.new_segment(segment))
        return pad

    def packet(self, pts_ms, *, key=False, ends=True, after_loss=False):
        """Have a slice of the picture of this time arrive; it is its last one, or there was one more to come."""
        pts_ms += BEGIN_MS
        self.number += 2 if after_loss else 1
        header = (
            bytes([0x80, 96 | ends << 7]) + self.number.to_bytes(2, "big") + (pts_ms * 90 % 2**32).to_bytes(4, "big")
        )
        buffer = self.gst.Buffer.new_wrapped(header + b"edge" + (KEY if key else SLICE))
        buffer.pts = pts_ms * MS
        if self.number == 1:
            buffer.set_flags(self.gst.BufferFlags.DISCONT)
        self.packets.push(buffer)

    def key(self, pts_ms, **options):
        self.packet(pts_ms, key=True, **options)

    def puts_out(self, pts_ms):
        """Have the decoder put out a frame."""
        buffer = self.gst.Buffer.new_wrapped(b"frame")
        buffer.pts, buffer.duration = (BEGIN_MS + pts_ms) * MS, 33 * MS
        self.frames.push(buffer)

    def takes(self, pts_ms):
        return self.clean.takes((BEGIN_MS + pts_ms) * MS, is_marked=False)

    def close(self):
        self.bin.set_state(self.gst.State.NULL)


@pytest.fixture
def connection():
    require_gstreamer("rtph264depay", "identity")
    made = Connection()
    yield made
    made.close()


def test_a_connection_that_begins_with_a_key_frame_gives_it(connection):
    connection.key(100)
    assert connection.takes(100)
    assert connection.takes(133)


def test_a_key_frame_in_front_of_a_loss_does_not_heal_it_however_close(connection):
    connection.key(100, ends=False)
    connection.packet(105, after_loss=True)  # times are near each other at the start of a connection
    assert not connection.takes(100)
    assert not connection.takes(105)
    assert not connection.takes(138)
    connection.key(200)
    assert connection.takes(200)


def test_a_loss_inside_a_key_frame_is_healed_by_the_next_one(connection):
    connection.key(100, ends=False)
    connection.key(100, after_loss=True)
    assert not connection.takes(100)
    assert not connection.takes(133)
    connection.key(200)
    assert connection.takes(200)


def test_a_loss_later_on_costs_the_picture_before_it_which_may_lack_its_end_and_all_until_the_next_key_frame(
    connection,
):
    connection.key(100)
    connection.puts_out(100)
    assert connection.takes(100)
    connection.packet(133, ends=False)
    connection.packet(200, after_loss=True)
    connection.puts_out(133)
    assert connection.takes(100)
    assert not connection.takes(133)
    assert not connection.takes(200)
    connection.key(300)
    assert not connection.takes(266)
    assert connection.takes(300)


def test_a_picture_without_its_begin_that_a_decoder_puts_out_with_the_time_of_the_one_before_it_is_not_taken(
    connection,
):
    connection.key(100)
    connection.puts_out(100)
    connection.packet(133, after_loss=True)
    connection.puts_out(100)
    assert not connection.takes(100)


def test_a_whole_key_frame_heals_though_it_is_the_first_picture_that_comes_after_a_loss(connection):
    connection.key(100)
    connection.packet(133)
    connection.packet(200, after_loss=True)  # it may lack its begin
    connection.key(233)
    assert not connection.takes(200)
    assert connection.takes(233)


def test_a_key_frame_whose_time_is_behind_what_was_put_out_heals_what_comes_later_than_that(connection):
    """Of a burst several pictures have one time, and a decoder's times go on: the key frame gets that of the last."""
    connection.key(100)
    connection.puts_out(100)
    connection.packet(133, ends=False)
    connection.packet(140, after_loss=True)
    connection.puts_out(200)
    connection.puts_out(233)
    connection.key(150)
    assert not connection.takes(200)
    assert not connection.takes(233)
    assert connection.takes(300)


@pytest.mark.parametrize("frames_of_one_time", [1, 2, 5, 1000])
def test_a_camera_whose_time_stands_still_is_limited_by_arrival(monkeypatch, frames_of_one_time):
    require_gstreamer("identity")
    gst = load().gst
    decoded = gst.ElementFactory.make("identity", None)
    limit = GstLimit(decoded, 2.0)

    class Frame:
        def __init__(self, pts):
            self.pts = pts

        def get_buffer(self):
            return self

    verdicts = []
    for tenth in range(100):
        monkeypatch.setattr("time.monotonic_ns", lambda tenth=tenth: (10**6 + tenth * 100) * MS)
        verdicts.append(limit._on_decoded(None, Frame(tenth // frames_of_one_time * frames_of_one_time * 100 * MS)))

    assert 19 <= verdicts.count(gst.PadProbeReturn.OK) <= 22
