"""The cameras that people own, by both decoders: up at once with the right picture, or refused with a clear reason."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.media.select import make_source
from edge.types import ImageSize, StreamState
from tests.support.clips import CANVAS, number_of
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.rtsp_cameras import LOGIN, NUMBER, REFUSED, RTSP_CAMERAS, WEB_CAMERAS, WEB_REFUSED, web_cameras
from tests.support.wait import wait_until

BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
SECOND_DECODER = pytest.mark.slow(reason="the same cameras with the second decoder")
STARTS = pytest.mark.parametrize(
    "starts", [1, pytest.param(10, marks=pytest.mark.slow(reason="ten starts, several at once"))]
)
UP_AT_ONCE = [StreamState.CONNECTING, StreamState.UP]
# The colour bars of `videotestsrc pattern=smpte` from left to right.
BARS = ((255, 255, 255), (255, 255, 0), (0, 255, 255), (0, 255, 0), (255, 0, 255), (255, 0, 0), (0, 0, 255))
VERY_SLOW = ("0.5 fps", "0.2 fps")
FILE_NAMES = {name: f"/{i}" for i, name in enumerate([*RTSP_CAMERAS, *REFUSED])}


@pytest.fixture(scope="module")
def rtsp():
    with contextlib.ExitStack() as stack:
        servers = {}
        for login in ("", "basic", "digest"):
            mounts = {
                FILE_NAMES[name]: RtspMount(
                    launch=one.launch,
                    login=LOGIN if login else None,
                    is_digest=login == "digest",
                    refuses=one.refuses,
                    is_shared=False,
                )
                for name, one in RTSP_CAMERAS.items()
                if one.login == login
            }
            if not login:
                mounts |= {FILE_NAMES[name]: RtspMount(launch=one, is_shared=False) for name, one in REFUSED.items()}
            servers[login] = stack.enter_context(RtspServer(mounts))
        yield servers


@pytest.fixture(scope="module")
def web():
    with web_cameras() as address:
        yield address


def states_until_frames(uri, count, *, credential=None, **more):
    """Return through what states a camera went, and its last frame; a state of one that was down has its reason."""
    states, frames = [], []
    camera = make_source(
        StreamConfig(id="a", uri=uri, **more),
        preprocess=CANVAS,
        base_dir=Path("/"),
        credential=lambda: credential,
        on_status=lambda status: states.append(status),
    )
    camera.open()
    try:

        def is_seen() -> bool:
            frame = camera.read(0.2)
            if frame is not None:
                frames.append((frame.header, frame.image.copy()))
            return len(frames) >= count if count else len(states) > 1

        wait_until(is_seen, timeout_s=20 + 6 * count, what=f"{count} frames of {uri}: {states}")
    finally:
        camera.close()
    return states, frames


def assert_starts(starts, uri, count, *, at_once=5, **more):
    """Start a camera so often, several times at once, which takes all that this machine has; return frames of one."""
    with ThreadPoolExecutor(at_once) as pool:
        looks = list(pool.map(lambda _: states_until_frames(uri, count, **more), range(starts)))
    for states, _ in looks:
        assert [status.state for status in states] == UP_AT_ONCE, states
    return looks[-1][1]


@STARTS
@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        pytest.param(name, decoder, marks=pytest.mark.slow(reason="it is slow") if name in VERY_SLOW else ())
        for name in RTSP_CAMERAS
        for decoder in ("software", "pyav")
    ],
)
@pytest.mark.promised(reason="the cameras that people own")
def test_rtsp_camera_starts_and_is_seen_as_it_is(rtsp, name, decoder, starts):
    camera = RTSP_CAMERAS[name]
    frames = assert_starts(
        starts if name not in VERY_SLOW else min(starts, 2),
        rtsp[camera.login].url(FILE_NAMES[name]),
        camera.frames,
        at_once=2 if "HEVC" in name else 5,  # the server's encoders would take seconds before they give anything
        decoder=decoder,
        stall_s=camera.stall_s,
        max_fps=20.0,
        credential=LOGIN if camera.login else None,
    )

    header, image = frames[-1]
    assert (header.source_size.width, header.source_size.height) == camera.size
    height, width = image.shape[:2]
    seen = [image[height // 3, round((i + 0.5) * width / len(BARS))] for i in range(len(BARS))]
    assert all(abs(int(a) - b) < 40 for one, bar in zip(seen, BARS, strict=True) for a, b in zip(one, bar, strict=True))


@pytest.mark.parametrize(
    ("name", "decoder", "words"),
    [
        ("sound only", "software", ("no video", "audio PCMU")),
        ("sound only", "pyav", ("no video", "audio pcm_mulaw")),
        ("MPEG-4 only", "software", ("no video", "video MP4V-ES")),
        ("MPEG-4 only", "pyav", ("no video", "video mpeg4")),
    ],
)
@pytest.mark.promised(reason="the cameras that people own")
def test_rtsp_camera_that_cannot_be_read_says_what_it_has(rtsp, name, decoder, words):
    states, frames = states_until_frames(rtsp[""].url(FILE_NAMES[name]), 0, decoder=decoder)

    assert (states[-1].state, frames) == (StreamState.DOWN, [])
    assert all(word in states[-1].reason for word in words), states[-1].reason


@pytest.mark.parametrize("decoder", ["software", pytest.param("pyav", marks=SECOND_DECODER)])
@STARTS
@pytest.mark.parametrize("path", WEB_CAMERAS)
def test_web_camera_starts_and_is_seen_as_it_is(web, path, decoder, starts):
    login = LOGIN if "digest" in path else None
    count = 3 if "one-picture" in path else 8
    frames = assert_starts(starts, web + path, count, decoder=decoder, credential=login, max_fps=20.0)

    assert {number_of(image) for _, image in frames} == {NUMBER}
    assert {header.source_size for header, _ in frames} == {ImageSize(width=320, height=180)}
    numbers = [header.frame for header, _ in frames]
    times = [header.pts_ns for header, _ in frames]
    assert (numbers, times) == (sorted(set(numbers)), sorted(set(times)))
    assert times[-1] < 60e9  # seconds of the stream, of which there were few


@BOTH
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/page", "text/html|picture"),
        ("/empty", "picture|Invalid data|End of file"),
        ("/wrong-login", "nauthorized"),
        ("/not-there", "ot Found"),
    ],
)
def test_web_camera_that_cannot_be_read_says_why(web, path, words, decoder):
    assert path in WEB_REFUSED
    states, frames = states_until_frames(web + path, 0, decoder=decoder, credential=("admin", "guess"))

    assert (states[-1].state, frames) == (StreamState.DOWN, [])
    assert any(word in states[-1].reason for word in words.split("|")), states[-1].reason
