"""When a key frame heals what was lost: a real depayloader asks for it, the times are ours."""

import pytest

from edge.media.gstreamer.binding import load
from edge.media.gstreamer.clean import CleanFrames
from tests.support.rtsp import require_gstreamer

RTP = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96"
MS = 1_000_000
SLICE = bytes([0x41, 0x9A, 0x00, 0x11])  # of a picture that refers to others


class Connection:
    """A codec section whose packets and key frames are pushed by hand."""

    def __init__(self):
        gst = self.gst = load().gst
        self.bin = gst.Pipeline.new(None)
        self.parts = {
            name: gst.ElementFactory.make(factory, name)
            for name, factory in (("depay", "rtph264depay"), ("coded", "fakesink"), ("keys", "identity"))
        }
        output = gst.ElementFactory.make("identity", "output")
        for element in (*self.parts.values(), output):
            self.bin.add(element)
        self.parts["coded"].set_property("async", False)
        self.parts["depay"].link(self.parts["coded"])
        self.clean = CleanFrames(self.bin, output, has_marks=False)
        self.bin.set_state(gst.State.PLAYING)
        self.packets = self._source("depay", RTP)
        self.keys = self._source("keys", "video/x-h264")
        self.number = 0

    def _source(self, name, caps):
        gst = self.gst
        pad = gst.Pad.new(f"to-{name}", gst.PadDirection.SRC)
        pad.link(self.parts[name].get_static_pad("sink"))
        pad.set_active(True)
        pad.push_event(gst.Event.new_stream_start(name))
        pad.push_event(gst.Event.new_caps(gst.Caps.from_string(caps)))
        segment = gst.Segment()
        segment.init(gst.Format.TIME)
        pad.push_event(gst.Event.new_segment(segment))
        return pad

    def packet(self, pts_ms, *, after_loss=False):
        """Have a packet of the picture of this time arrive."""
        self.number += 2 if after_loss else 1
        header = bytes([0x80, 96]) + self.number.to_bytes(2, "big") + (pts_ms * 90).to_bytes(4, "big") + b"edge"
        buffer = self.gst.Buffer.new_wrapped(header + SLICE)
        buffer.pts = pts_ms * MS
        if after_loss or self.number == 1:
            buffer.set_flags(self.gst.BufferFlags.DISCONT)
        self.packets.push(buffer)

    def key(self, pts_ms):
        """Have a key frame pass, which comes some packets after its own."""
        buffer = self.gst.Buffer.new_wrapped(b"key")
        buffer.pts = pts_ms * MS
        self.keys.push(buffer)

    def takes(self, pts_ms):
        return self.clean.takes(pts_ms * MS, is_marked=False)

    def close(self):
        self.clean.disconnect()
        self.bin.set_state(self.gst.State.NULL)


@pytest.fixture
def connection():
    require_gstreamer("rtph264depay", "identity")
    made = Connection()
    yield made
    made.close()


def test_a_connection_that_begins_with_a_key_frame_gives_it(connection):
    connection.packet(100)
    connection.key(100)
    assert connection.takes(100)
    assert connection.takes(133)


def test_a_key_frame_in_front_of_a_loss_does_not_heal_it_however_close(connection):
    connection.packet(100)
    connection.packet(105, after_loss=True)  # times are near each other at the start of a connection
    connection.key(100)
    assert not connection.takes(105)
    assert not connection.takes(138)
    connection.key(200)
    assert connection.takes(200)


def test_a_loss_inside_a_key_frame_is_healed_by_the_next_one(connection):
    connection.packet(100)
    connection.packet(100, after_loss=True)
    connection.key(100)
    assert not connection.takes(100)
    assert not connection.takes(133)
    connection.key(200)
    assert connection.takes(200)


def test_a_loss_later_on_costs_the_picture_before_it_which_may_lack_its_end_and_all_until_the_next_key_frame(
    connection,
):
    connection.packet(100)
    connection.key(100)
    assert connection.takes(100)
    connection.packet(133)
    connection.packet(200, after_loss=True)
    assert connection.takes(100)
    assert not connection.takes(133)
    assert not connection.takes(200)
    connection.key(300)
    assert not connection.takes(266)
    assert connection.takes(300)
