"""Web cameras with the manners that people report: how they announce their JPEGs, or do not."""

import contextlib
import hashlib
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import cv2

from tests.support.clips import numbered
from tests.support.http_client import handled_by

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
        manners = {**WEB_CAMERAS, **WEB_REFUSED}.get(self.path)
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
        while not pace.wait(at_once / _FPS):
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
