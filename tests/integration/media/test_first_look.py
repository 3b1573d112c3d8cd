"""The first look at a stream, by both decoders: what it is, and why it is not seen."""

import threading
import time

import pytest

from edge.config.schema import StreamConfig
from edge.deploy.new.document import look_text
from edge.errors import SourceError
from edge.media.address import parse_address
from edge.media.select import look_at
from tests.support.clips import number_of, turn_clip, write_clip
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.rtsp_cameras import web_cameras
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(reason="further clips and cameras: the first row of each test is quick")
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
LOGIN = ("bob", "s3cr: t@/x")


def looked(uri, folder, *, decoder, login=None, within_s=20.0, **more):
    address = parse_address(uri, base_dir=folder, credential=login)
    return look_at(StreamConfig(id="a", uri=uri, decoder=decoder), address, within_s=within_s, **more)


@BOTH
@pytest.mark.parametrize(("suffix", "codec", "expected"), [("mp4", "libx264", "h264"), ("mkv", "libx265", "h265")])
def test_a_clip_is_seen_from_its_first_picture(tmp_path, decoder, suffix, codec, expected):
    write_clip(tmp_path / f"a.{suffix}", count=30, width=640, height=360, fps=12, codec=codec, first=5)

    look = looked(f"a.{suffix}", tmp_path, decoder=decoder)

    assert (look.codec, str(look.size), look.fps) == (expected, "640x360", 12)
    assert (look.picture.shape, number_of(look.picture)) == ((360, 640, 3), 5)


@pytest.mark.slow(reason="turns a clip of many pictures")
@BOTH
def test_a_clip_that_players_turn_is_said_to_be_sideways(tmp_path, decoder):
    clip = turn_clip(write_clip(tmp_path / "phone.mp4", count=200, width=1920, height=1080), 90)

    look = looked(clip.name, tmp_path, decoder=decoder)

    assert (look.turn_deg, str(look.size)) == (90, "1920x1080")
    assert "sideways: players turn it by 90 degrees" in look_text(look)


@BOTH
def test_a_clip_of_one_picture_has_no_rate(tmp_path, decoder):
    write_clip(tmp_path / "a.mp4", count=1)

    assert looked("a.mp4", tmp_path, decoder=decoder).fps is None


@pytest.mark.parametrize(("path", "is_slow"), [("/ok", False), ("/one-picture", False), ("/one-in-five-seconds", True)])
def test_a_camera_whose_frames_are_far_apart_is_slow_and_one_of_a_picture_a_request_is_not(tmp_path, path, is_slow):
    with web_cameras() as cameras:
        assert looked(cameras + path, tmp_path, decoder="software").is_slow == is_slow


@BOTH
def test_a_camera_is_seen_by_its_login_and_says_that_it_wants_one(tmp_path, decoder):
    clip = write_clip(tmp_path / "a.h264", count=120)
    with RtspServer({"/a": RtspMount(str(clip), "h264", LOGIN)}) as server:
        look = looked(server.url("/a"), tmp_path, decoder=decoder, login=LOGIN)
        problems = []
        for wrong in (None, ("bob", "guess")):
            with pytest.raises(SourceError) as refused:
                looked(server.url("/a"), tmp_path, decoder=decoder, login=wrong)
            problems.append(refused.value)
        with pytest.raises(SourceError) as unknown:
            looked(server.url("/b"), tmp_path, decoder=decoder, login=LOGIN)

    assert (look.codec, str(look.size)) == ("h264", "320x180")
    assert 25 < look.fps < 36
    assert [problem.wants_login for problem in problems] == [True, True]
    assert not unknown.value.wants_login


def test_nobody_who_has_gone_is_waited_for(tmp_path):
    before = set(threading.enumerate())  # also of tests before this one
    with RtspServer({"/a": RtspMount("", "jpeg")}) as server:
        server.freeze()
        begun = time.monotonic()
        with pytest.raises(SourceError):
            looked(server.url("/a"), tmp_path, decoder="software", within_s=300, is_stopped=lambda: True)
        server.thaw()

    assert time.monotonic() - begun < 60
    wait_until(lambda: set(threading.enumerate()) <= before, what="its threads have ended")
