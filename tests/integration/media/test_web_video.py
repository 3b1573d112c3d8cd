"""Video over HTTP by both decoders: what is live as it comes, what comes in bursts at its own pace and all of it."""

import pytest

from edge.types import ClockSource, StreamState
from tests.support.rtsp import require_gstreamer
from tests.support.viewer import Viewer, assert_balances
from tests.support.web_video import FPS, LENGTH, LOGIN, WEB_VIDEO, web_video

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow_but("test_video_of_a_web_address_is_seen_at_its_own_pace", reason="further kinds of web video"),
]
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
SEEN = 40


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    require_gstreamer("souphttpsrc", "parsebin", "flvdemux", "tsdemux", "hlsdemux", "avdec_h264")
    with web_video(tmp_path_factory.mktemp("web")) as address:
        yield address


@BOTH
@pytest.mark.parametrize("path", WEB_VIDEO)
@pytest.mark.promised(reason="the cameras that people own")
def test_video_of_a_web_address_is_seen_at_its_own_pace(web, path, decoder):
    with Viewer(web + path, decoder=decoder, credential=LOGIN if "login" in path else None) as viewer:
        viewer.await_frames(20)
        if WEB_VIDEO[path][2] == "burst":
            viewer.await_unbroken(SEEN, LENGTH)
        else:  # what comes together is together, and the newest wins
            viewer.await_frames(SEEN)

    assert viewer.states == [StreamState.CONNECTING, StreamState.UP]
    assert viewer.wrong_codes(LENGTH) == []
    first, last = viewer.headers[-SEEN], viewer.headers[-1]
    assert 0.5 < (last.frame - first.frame) / (last.read_at_ns - first.read_at_ns) * 1e9 / FPS < 1.3
    assert viewer.headers[-1].clock is ClockSource.ARRIVAL
    assert_balances(viewer)
