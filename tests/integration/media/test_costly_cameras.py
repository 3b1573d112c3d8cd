"""Cameras that cost the reader: found out at a bounded price, ended, and asked again at a rate that the price sets."""

import time

import pytest

from edge.media.threads import stuck_streams
from edge.types import StreamState
from tests.support.costly_cameras import COSTLY, costly_cameras
from tests.support.viewer import Viewer
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_camera_that_costs_is_given_up_and_rarely_tried_again", reason="further cameras"
)
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
# Those that the libraries bound themselves, or that do not get far.
CHEAP = {
    ("http redirect", "software"),
    ("http redirect", "pyav"),
    ("http header", "software"),
    ("http noise", "software"),
    ("http part header", "software"),
}
MOST_UNNOTICED_S = 2.0  # of all threads, among them those of the test
MOST_CPU_S = 4.0  # until it is given up: of a connection that nothing bounds, eight seconds of a core


@pytest.fixture(scope="module")
def cameras():
    with costly_cameras() as addresses:
        yield addresses


@BOTH
@pytest.mark.parametrize("name", COSTLY)
def test_a_camera_that_costs_is_given_up_and_rarely_tried_again(cameras, name, decoder):
    begun_s = time.process_time()
    with Viewer(cameras[name], decoder=decoder) as viewer:
        viewer.await_state(StreamState.DOWN)
        spent_s = time.process_time() - begun_s
        due_in_s = viewer.source.due_in_s
        wait_until(lambda: not stuck_streams(), what="its connection has ended")

    assert spent_s < (0.6 if "redirect" in name and (name, decoder) in CHEAP else MOST_CPU_S)
    if (name, decoder) == ("rtsp redirect", "pyav") and "no answer for 5 s" in viewer.reason:
        assert spent_s < MOST_UNNOTICED_S  # a machine so busy that FFmpeg's own time ran out first
    elif (name, decoder) not in CHEAP:
        assert "does not end" in viewer.reason
        assert due_in_s > 15
