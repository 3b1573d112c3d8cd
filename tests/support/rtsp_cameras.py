"""RTSP and web cameras with the manners that people report."""

import contextlib
import hashlib
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import cv2

from tests.support.clips import numbered
from tests.support.http_client import handled_by
from tests.support.rtsp import UNHEARD, with_sound

_VIDEO = "videotestsrc is-live=true pattern=smpte ! video/x-raw,format={fmt},width={w},height={h},framerate={fps} ! "
_H264 = "x264enc tune=zerolatency speed-preset=ultrafast bitrate=500 key-int-max={k} ! video/x-h264,profile={p} ! "
# One thread and no looking ahead: the first picture comes half a second sooner, also of a busy machine.
_H265_SOON = "pools=none:frame-threads=1:rc-lookahead"
_H265 = 'x265enc speed-preset=ultrafast bitrate=500 key-int-max=15 option-string="{x}" ! '
_DESCRIBED = (
    "capssetter replace=true caps=application/x-rtp,media=(string){media},clock-rate={rate},payload={pt},"
    f"encoding-name=(string){{encoding}}{{more}} ! {UNHEARD} name=pay{{n}}"
)
_PAY = "rtp{codec}pay name=pay{n} pt={pt} config-interval={c}"


@dataclass(frozen=True, slots=True)
class RtspCamera:
    launch: str
    size: tuple[int, int] = (320, 180)
    stall_s: float = 3.0
    frames: int = 5
    login: str = ""  # basic or digest
    refuses: tuple[int, ...] = ()  # tracks that nobody may set up


def _raw(fps: str = "15/1", fmt: str = "I420", w: int = 320, h: int = 180) -> str:
    return _VIDEO.format(fmt=fmt, w=w, h=h, fps=fps)


def _h264(fps: str = "15/1", *, n=0, pt=96, k=15, p="baseline", c=1, **raw) -> str:
    return _raw(fps, **raw) + _H264.format(k=k, p=p) + _PAY.format(codec="h264", n=n, pt=pt, c=c)


def _unread(track: str, n: int) -> str:
    return f"{track.replace(f' name=pay{n}', '')} ! {UNHEARD} name=pay{n}"


def _h265(x: str, fmt: str = "I420") -> str:
    return _raw(fmt=fmt) + _H265.format(x=x) + _PAY.format(codec="h265", n=0, pt=96, c=1)


def _in_band_only() -> str:
    """Take the parameter sets out of what the description says."""
    one_slice = _h264(c=-1).replace("x264enc", "x264enc sliced-threads=false").replace(" name=pay0", "")
    more = ",packetization-mode=(string)1"
    return f"{one_slice} ! {_DESCRIBED.format(n=0, media='video', rate=90000, pt=96, encoding='H264', more=more)}"


def _onvif_metadata(n: int) -> str:
    """A track that is described as ONVIF's analytics; what its packets hold is not for us."""
    payload = "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay pt=107"
    described = _DESCRIBED.format(n=n, media="application", rate=90000, pt=107, encoding="VND.ONVIF.METADATA", more="")
    return f"{payload} ! {described}"


def _backchannel(n: int) -> str:
    """A track for sound towards the camera, as ONVIF Profile T describes it: only who asks for it may set it up."""
    sound = "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay pt=0"
    more = ',a-sendonly=(string)\\"\\"'
    return f"{sound} ! {_DESCRIBED.format(n=n, media='audio', rate=8000, pt=0, encoding='PCMU', more=more)}"


def _slow(fps: str, period_s: float) -> RtspCamera:
    return RtspCamera(_h264(fps, k=1), stall_s=max(3.0, 3 * period_s), frames=2)


_PLAIN = _h264()
RTSP_CAMERAS = {
    "plain": RtspCamera(_PLAIN),
    "two videos": RtspCamera(f"{_h264(w=640, h=360)} {_unread(_h264(n=1, pt=98), 1)}", size=(640, 360)),
    "a video that nobody reads, then H.264": RtspCamera(
        f"{_unread(f'{_raw()}avenc_mpeg4 ! rtpmp4vpay name=pay0 pt=97', 0)} {_h264(n=1)}"
    ),
    "HEVC with B-frames": RtspCamera(_h265(f"bframes=3:b-adapt=0:{_H265_SOON}=4")),
    "HEVC of 10 bits": RtspCamera(_h265(f"bframes=0:{_H265_SOON}=0", "I420_10LE")),
    "H.264 4:2:2": RtspCamera(_h264(p="high-4:2:2", fmt="Y42B")),
    "a key frame in ten seconds": RtspCamera(_h264(k=150)),
    "parameter sets in its description only": RtspCamera(_h264(k=15, c=0)),
    "parameter sets in band only": RtspCamera(_in_band_only()),
    "parameter sets before each slice": RtspCamera(_h264(c=-1).replace("x264enc", "x264enc threads=2")),
    "no timing in its parameter sets": RtspCamera(_h264().replace("x264enc", "x264enc insert-vui=false")),
    "ONVIF metadata before": RtspCamera(f"{_onvif_metadata(0)} {_h264(n=1)}"),
    "ONVIF metadata behind": RtspCamera(f"{_PLAIN} {_onvif_metadata(1)}"),
    "ONVIF backchannel before": RtspCamera(f"{_backchannel(0)} {_h264(n=1)}", refuses=(0,)),
    "ONVIF backchannel behind": RtspCamera(f"{_PLAIN} {_backchannel(1)}", refuses=(1,)),
    "MJPEG": RtspCamera(_raw(h=176) + "jpegenc ! rtpjpegpay name=pay0 pt=26", size=(320, 176)),
    "1 fps": _slow("1/1", 1.0),
    "0.5 fps": _slow("1/2", 2.0),
    "0.2 fps": _slow("1/5", 5.0),
    "basic login": RtspCamera(_PLAIN, login="basic"),
    "digest login": RtspCamera(_PLAIN, login="digest"),
} | {
    f"{sound} {'before' if is_first else 'behind'}": RtspCamera(
        with_sound("", sound, is_first=is_first, video=_h264(n=int(is_first)))
    )
    for sound in ("aac", "pcmu", "pcma", "opus")
    for is_first in (False, True)
}
REFUSED = {
    "sound only": (
        "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay name=pay0 pt=0"
    ),
    "MPEG-4 only": _raw() + "avenc_mpeg4 ! rtpmp4vpay name=pay0 pt=97",
}


LOGIN = ("admin", "se:c@r#t%1")
NUMBER = 77
_FPS = 10
_JPEG = cv2.imencode(".jpg", numbered(NUMBER, width=320, height=180)[..., ::-1])[1].tobytes()
_MULTIPART = "multipart/x-mixed-replace; boundary=frame"

# path: content type, line between parts, and what else is odd
WEB_CAMERAS: dict[str, dict] = {
    "/ok": {},
    "/no-first-boundary": {"is_begun": False},
    "/dashes-in-the-boundary": {"kind": "multipart/x-mixed-replace; boundary=--frame"},
    "/empty-line-first": {"prefix": b"\r\n"},
    "/part-type-with-options": {"part": "image/jpeg;size=5769"},
    "/part-type-jpg": {"part": "image/jpg"},
    "/part-type-in-capitals": {"part": "Image/JPEG"},
    "/no-content-type": {"kind": None},
    "/quoted-boundary": {"kind": 'multipart/x-mixed-replace; boundary="frame"'},
    "/no-lengths": {"has_length": False},
    "/no-lengths-and-odd-type": {"has_length": False, "part": "image/jpeg;q=1"},
    "/another-boundary": {"line": b"other"},
    "/chunked": {"is_chunked": True},
    "/three-at-once": {"at_once": 3},
    "/one-picture": {"kind": "image/jpeg", "is_one": True},
    "/one-picture-without-type": {"kind": None, "is_one": True},
    "/digest": {"is_digest": True},
    "/digest-one-picture": {"kind": "image/jpeg", "is_one": True, "is_digest": True},
}
WEB_SLOW: dict[str, dict] = {"/one-in-five-seconds": {"fps": 0.2}}
WEB_REFUSED: dict[str, dict] = {
    "/page": {"kind": "text/html", "is_one": True, "body": b"<html>log in</html>"},
    "/empty": {"kind": "image/jpeg", "is_one": True, "body": b""},
    "/wrong-login": {"is_digest": True},
    "/not-there": {},
}


class _Camera(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.headers['Host']}{self.path}")
        manners = {**WEB_CAMERAS, **WEB_SLOW, **WEB_REFUSED}.get(self.path)
        if manners is None or self.path == "/not-there":
            self.send_error(404)
        elif manners.get("is_digest") and not self._is_known():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Digest realm="IPCamera", nonce="d2196ed82d42", qop="auth"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            with contextlib.suppress(OSError):
                self._answer(**{key: value for key, value in manners.items() if key != "is_digest"})
            self.close_connection = True

    def _answer(
        self,
        kind: str | None = _MULTIPART,
        part: str = "image/jpeg",
        line: bytes = b"frame",
        prefix: bytes = b"",
        body: bytes = _JPEG,
        has_length: bool = True,
        is_begun: bool = True,
        is_chunked: bool = False,
        is_one: bool = False,
        at_once: int = 1,
        fps: float = _FPS,
    ) -> None:
        self.send_response(200)
        if kind is not None:
            self.send_header("Content-Type", kind)
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        if is_one:
            self.wfile.write(body)
            return

        def write(content: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content) if is_chunked else content)

        length = b"Content-Length: %d\r\n" % len(body) if has_length else b""
        head = b"Content-Type: " + part.encode() + b"\r\n" + length + b"\r\n"
        write(prefix + (b"--" + line + b"\r\n" if is_begun else b"\r\n"))
        pace = threading.Event()
        while not pace.wait(at_once / fps):
            write(at_once * (head + body + b"\r\n--" + line + b"\r\n"))

    def _is_known(self) -> bool:
        given = dict(re.findall(r'(\w+)="?([^",]+)"?', self.headers.get("Authorization") or ""))
        user, password = LOGIN
        one, two = _md5(f"{user}:IPCamera:{password}"), _md5(f"GET:{given.get('uri', '')}")
        wanted = _md5(":".join([one, *(given.get(name, "") for name in ("nonce", "nc", "cnonce", "qop")), two]))
        return given.get("response") == wanted

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


@contextlib.contextmanager
def web_cameras(*, tls: tuple[Path, Path] | None = None, asked: list[str] | None = None) -> Iterator[str]:
    """Serve them all, over TLS with a certificate and its key; gives the address that their paths are behind.

    What is asked for, and of whom, goes into `asked`.
    """
    with handled_by(_Camera, asked=[] if asked is None else asked) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            # In the thread of each: one that breaks off in its greeting keeps nobody waiting.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
