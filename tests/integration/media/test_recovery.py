"""How soon a camera is back after its server is, whatever the outage was: real servers that are killed and frozen."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.credentials import read_credential
from edge.media.address import parse_address
from edge.media.probe import CameraBackoff, is_there, remedy_of_answer, why_unreached
from edge.types import ImageSize, StreamState
from tests.support.clips import write_clip
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.viewer import Viewer, assert_balances
from tests.support.wait import wait_looks, wait_until

pytestmark = pytest.mark.slow_but(
    "test_f28_a_killed_server_is_found_within_five_seconds_of_its_return", reason="further clips and cameras"
)
MOST_S = 5.0


@pytest.fixture(scope="module")
def mount(tmp_path_factory) -> RtspMount:
    folder = tmp_path_factory.mktemp("clips")
    return RtspMount(str(write_clip(folder / "a.h264", count=240, gop=15)), "h264")


@pytest.fixture
def server(mount) -> Iterator[RtspServer]:
    with RtspServer({"/a": mount}) as made:
        yield made


@pytest.fixture
def long_waits(monkeypatch):
    """As after an outage of hours: by itself, no attempt would come within the test."""
    monkeypatch.setattr(CameraBackoff, "delay_s", lambda *_, **__: 300.0)


def await_return(viewer: Viewer) -> None:
    seen = len(viewer.arrivals)
    wait_looks(lambda: len(viewer.arrivals) > seen, what="a frame", seconds=MOST_S)


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_f28_a_killed_server_is_found_within_five_seconds_of_its_return(server, decoder, long_waits):
    with Viewer(server.url("/a"), decoder=decoder) as viewer:
        viewer.await_frames(5)
        server.kill()
        viewer.await_state(StreamState.DOWN)
        wait_until(lambda: viewer.source.is_known_away, what="a probe without an answer")
        assert viewer.source.reconnects == 0
        server.start()
        # FFmpeg looks at a stream for a second before it gives a frame.
        await_return(viewer)

    assert viewer.source.reconnects == 1
    assert_balances(viewer)


def test_f28_a_frozen_server_is_found_within_five_seconds_of_its_thaw(server, long_waits):
    with Viewer(server.url("/a"), stall_s=0.5) as viewer:
        viewer.await_frames(5)
        server.freeze()
        viewer.await_state(StreamState.DOWN)
        wait_until(lambda: viewer.source.is_known_away, what="a probe without an answer")
        server.thaw()
        await_return(viewer)


def test_f28_a_stream_that_its_server_did_not_have_is_found_within_five_seconds(mount, server, long_waits):
    with Viewer(server.url("/later")) as viewer:
        viewer.await_state(StreamState.DOWN)
        assert "Not found" in viewer.reason
        wait_until(lambda: viewer.source.is_known_away, what="a probe that finds nothing")
        server.mount("/later", mount)
        await_return(viewer)


def test_a_server_that_flaps_is_not_waited_for_longer_each_time(server):
    with Viewer(server.url("/a")) as viewer:
        for _ in range(5):
            viewer.await_frames(2)
            server.kill()
            viewer.await_state(StreamState.DOWN)
            server.start()
            await_return(viewer)


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_f40_a_camera_that_comes_back_with_another_codec_and_size_is_decoded(server, mount, decoder, tmp_path):
    hevc = write_clip(tmp_path / "a.hevc", codec="libx265", width=640, height=360, count=240, gop=15, x265="bframes=0")
    with Viewer(server.url("/a"), decoder=decoder) as viewer:
        for other in (RtspMount(str(hevc), "h265"), mount):
            viewer.await_frames(5)
            server.kill()
            viewer.await_state(StreamState.DOWN)
            begun = len(viewer.headers)
            server.start({"/a": other})
            viewer.await_frames(5)

    sizes = [header.source_size for header in viewer.headers]
    assert ImageSize(width=640, height=360) in sizes
    assert set(sizes[begun:]) == {ImageSize(width=320, height=180)}
    assert_balances(viewer)


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_a_password_that_was_changed_is_read_again(mount, decoder, tmp_path, monkeypatch, long_waits):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    secret = tmp_path / "edge-deploy/credentials/gate"
    secret.parent.mkdir(parents=True)
    write_secret(secret, "bob:old")

    def read() -> tuple[str, str]:
        found = read_credential("gate")
        return found.user, found.password

    old, new = (dataclasses.replace(mount, login=("bob", password)) for password in ("old", "new"))
    with RtspServer({"/a": old}) as camera, Viewer(camera.url("/a"), decoder=decoder, read_credential=read) as viewer:
        viewer.await_frames(5)
        camera.kill()
        camera.start({"/a": new})
        wait_until(lambda: "nauthorized" in viewer.reason, what="a refusal")
        secret.unlink()  # while it is written anew
        write_secret(secret, "bob:new")
        viewer.await_frames(5)


def write_secret(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="ascii")
    path.chmod(0o600)


def test_what_a_probe_sees(server, tmp_path):
    def address(uri: str):
        return parse_address(uri, base_dir=tmp_path)

    def why_of(uri: str):
        return why_unreached(address(uri)).problem.removeprefix(f"{uri}: ")

    assert is_there(address(server.url("/a"))) is True
    assert "write rtsp://" in remedy_of_answer(address(server.url("/a").replace("rtsp", "http", 1)))
    assert why_unreached(address(server.url("/a"))) is None
    assert is_there(address(server.url("/nowhere"))) is True
    assert is_there(address(server.url("/nowhere")), was_unknown=True) is False
    assert is_there(address(server.url("/a")), was_unknown=True) is True
    server.freeze()
    assert is_there(address(server.url("/a"))) is False
    server.thaw()
    server.kill()
    assert is_there(address(server.url("/a"))) is False
    assert is_there(address("rtsp://no-such-host.invalid/a")) is False
    assert why_of(server.url("/a")) == f"nothing listens on port {server.port} of 127.0.0.1"
    assert why_of("http://no-such-host.invalid/a") == "no such host name: no-such-host.invalid"
    assert why_unreached(address("v4l2:///dev/video-that-is-not-there")) is None
    assert is_there(address("v4l2:///dev/video-that-is-not-there")) is False
    assert is_there(address("test://")) is None
