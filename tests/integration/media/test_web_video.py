"""Video over HTTP by both decoders: what is live as it comes, what comes in bursts at its own pace and all of it."""

import base64
import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from edge.types import ClockSource, StreamState
from tests.support.clips import write_clip
from tests.support.http_client import handled_by
from tests.support.viewer import Viewer, assert_balances

FPS, LENGTH = 25, 250
_SEGMENT_S, _WINDOW = 2, 4
_PLAYLISTS = "application/vnd.apple.mpegurl"

# path: content type, what is sent and how; "burst": all at once, "live": by its times
WEB_VIDEO: dict[str, tuple[str, str, str]] = {
    "/live/stream.flv": ("video/x-flv", "flv", "live"),
    "/flv?channel=0&stream=main": ("application/octet-stream", "flv", "live"),
    "/bytes.bin": ("text/plain", "ts", "live"),
    "/recording": ("video/x-flv", "flv", "burst"),
    "/hls/vod.m3u8": (_PLAYLISTS, "m3u8", "burst"),
    "/hls/live.m3u8": (_PLAYLISTS, "window", "burst"),
    "/hls/index": (_PLAYLISTS, "window", "burst"),
    "/login/vod.m3u8": (_PLAYLISTS, "m3u8", "burst"),  # its segments want the login, too
}
LOGIN = "admin", "se:c@r#t%1"


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        folder: Path = self.server.folder
        with contextlib.suppress(OSError):
            if self.path.startswith("/login/") and not self._is_known():
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="camera"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif self.path.endswith(".ts"):
                self._send("video/mp2t", (folder / self.path.rpartition("/")[2]).read_bytes())
            elif self.path not in WEB_VIDEO:
                self.send_error(404)
            else:
                kind, what, how = WEB_VIDEO[self.path]
                content = self._window() if what == "window" else (folder / f"a.{what}").read_bytes()
                if how == "burst":
                    self._send(kind, content)
                else:
                    self._send_live(kind, _flv_tags(content) if what == "flv" else _slices(content))

    def _is_known(self) -> bool:
        return self.headers["Authorization"] == f"Basic {base64.b64encode(':'.join(LOGIN).encode()).decode()}"

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_live(self, kind: str, pieces: Iterator[tuple[float, bytes]]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begun, pause = time.monotonic(), threading.Event()
        for due_s, piece in pieces:
            pause.wait(max(0.0, begun + due_s - time.monotonic()))
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _window(self) -> bytes:
        """Show the last segments of a stream that began when it was first asked for."""
        began = self.server.began.setdefault(self.path, time.monotonic())
        last = min(LENGTH // FPS // _SEGMENT_S - 1, _WINDOW - 1 + int((time.monotonic() - began) / _SEGMENT_S))
        first = max(0, last - _WINDOW + 1)
        segments = "".join(f"#EXTINF:{_SEGMENT_S}.0,\na{number}.ts\n" for number in range(first, last + 1))
        head = f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:{_SEGMENT_S}\n#EXT-X-MEDIA-SEQUENCE:{first}\n"
        return (head + segments).encode()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def _flv_tags(content: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield a file's tags with their times (Adobe's FLV specification 10.1, E.4)."""
    at = 9 + 4
    yield 0.0, content[:at]
    while at < len(content):
        size = 11 + int.from_bytes(content[at + 1 : at + 4], "big") + 4
        yield int.from_bytes(content[at + 4 : at + 7], "big") / 1000, content[at : at + size]
        at += size


def _slices(content: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield packets of a transport stream, evenly over its duration."""
    step = 188 * 3
    for at in range(0, len(content), step):
        yield LENGTH / FPS * at / len(content), content[at : at + step]


@contextlib.contextmanager
def web_video(folder: Path) -> Iterator[str]:
    """Make and serve them; gives the address that their paths are behind."""
    for name in ("a.flv", "a.ts", "a.m3u8"):
        write_clip(folder / name, count=LENGTH, fps=FPS, gop=FPS)
    with handled_by(_Server, folder=folder, began={}) as server:
        yield f"http://127.0.0.1:{server.server_port}"


pytestmark = pytest.mark.slow_but(
    "test_video_of_a_web_address_is_seen_at_its_own_pace", reason="further kinds of web video"
)
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
SEEN = 40


@pytest.fixture(scope="module")
def web(tmp_path_factory):
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
