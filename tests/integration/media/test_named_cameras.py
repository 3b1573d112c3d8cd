"""Cameras behind TLS that answer with whole addresses under their own name: the tunnel leads these, too."""

import pytest

from edge.config.schema import CameraTlsConfig
from tests.support.certificates import fingerprint_of, make_self_signed
from tests.support.named_camera import NamedCamera
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.rtsp_cameras import RTSP_CAMERAS
from tests.support.viewer import Viewer
from tests.support.web_cameras import LOGIN

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow_but("test_a_camera_that_sends_on_by_its_whole_address_is_followed", reason="further names"),
]
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    require_gstreamer("rtspsrc", "avdec_h264", "x264enc", server=True)
    return make_self_signed(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def server(own):
    plain = RtspMount(launch=RTSP_CAMERAS["plain"].launch, is_shared=False)
    login = RtspMount(launch=RTSP_CAMERAS["plain"].launch, is_shared=False, login=LOGIN, is_digest=True)
    with RtspServer({"/main": plain}) as made, RtspServer({"/main": login}) as closed:
        yield {"plain": made, "digest": closed}


@BOTH
@pytest.mark.parametrize("by", ["plain", "digest"])
@pytest.mark.parametrize("name", [None, "camera-7.example", "10.11.12.13:322"])
def test_a_camera_that_names_its_tracks_by_whole_addresses_is_read(server, own, name, by, decoder):
    with NamedCamera(server[by].port, (own.certificate, own.key), name=name) as camera:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(own))
        uri = f"rtsps://127.0.0.1:{camera.port}/main"
        with Viewer(uri, decoder=decoder, tls=tls, credential=LOGIN if by == "digest" else None) as viewer:
            viewer.await_frames(3)


@BOTH
def test_a_camera_that_sends_on_by_its_whole_address_is_followed(server, own, decoder):
    with NamedCamera(server["plain"].port, (own.certificate, own.key), sends_on=("/old", "/main")) as camera:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(own))
        with Viewer(f"rtsps://127.0.0.1:{camera.port}/old", decoder=decoder, tls=tls) as viewer:
            viewer.await_frames(3)
