"""Cameras and files are of GStreamer: of all that the tests of this folder use."""

import pytest

from tests.support.rtsp import require_gstreamer

READERS = ("rtspsrc", "rtph264depay", "souphttpsrc", "multipartdemux", "flvdemux", "tsdemux", "hlsdemux", "parsebin")
CODECS = ("avdec_h264", "avdec_h265", "x264enc", "x265enc", "jpegparse", "jpegdec", "jpegenc", "avenc_aac", "opusenc")


@pytest.fixture(scope="session", autouse=True)
def _gstreamer():
    require_gstreamer(*READERS, *CODECS, "videotestsrc", "capssetter", server=True)
