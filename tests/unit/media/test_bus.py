"""What a pipeline's bus says of a camera, in the order of the GStreamer that says it."""

from edge.media.address import IS_UNKNOWN, parse_address
from edge.media.gstreamer.binding import load
from edge.media.gstreamer.bus import BusReader
from tests.support.rtsp import require_gstreamer


def test_a_wrong_path_is_told_though_the_source_speaks_of_logins_first(tmp_path):
    """As rtspsrc of 1.20 answers a 404: two errors, of which the second one has the reason."""
    require_gstreamer("rtspsrc")
    gst, glib = load().gst, load().glib
    bus, source = gst.Bus.new(), gst.ElementFactory.make("rtspsrc", "source")
    said = (
        (
            gst.ResourceError.OPEN_READ,
            "Could not open resource for reading.",
            "No supported authentication protocol was found",
        ),
        (gst.ResourceError.NOT_FOUND, "Not found", "Not Found (404)"),
    )
    for code, words, debug in said:
        error = glib.Error.new_literal(gst.ResourceError.quark(), words, code)
        bus.post(gst.Message.new_error(source, error, f"../gst/rtsp/gstrtspsrc.c(1): send ():\n{debug}"))
    reader = BusReader(bus, parse_address("rtsp://gate/nowhere", base_dir=tmp_path), is_live=True)

    reader.poll()

    assert "Not found" in str(reader.problem)
    assert (reader.problem.hint, reader.problem.is_permanent) == (IS_UNKNOWN, True)
