"""Cameras that cost the reader: answers that never end, and that send on to themselves.

Each path of `COSTLY` is one; the scheme of its address is the first part of its name.
"""

import contextlib
import socketserver
import subprocess
import sys
from collections.abc import Iterator

_FLOOD = b"X-Filler: " + b"a" * 1000 + b"\r\n"
_JPEG_BEGUN = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
_MULTIPART = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=f\r\n\r\n--f\r\n"

# name: what is answered to each request, and what follows it without an end
COSTLY: dict[str, tuple[bytes, bytes]] = {
    "rtsp redirect": (b"RTSP/1.0 302 Moved\r\nCSeq: %(cseq)s\r\nLocation: %(self)s\r\n\r\n", b""),
    "rtsp header": (b"RTSP/1.0 200 OK\r\nCSeq: %(cseq)s\r\n", _FLOOD),
    "rtsp data": (b"", b"$\x00\x00\x08abcdefgh" * 100),
    "rtsp body": (b"RTSP/1.0 200 OK\r\nCSeq: %(cseq)s\r\nContent-Length: 999999999\r\n\r\n", _FLOOD),
    "http redirect": (b"HTTP/1.1 302 Found\r\nLocation: %(self)s\r\nContent-Length: 0\r\n\r\n", b""),
    "http header": (b"HTTP/1.1 200 OK\r\n", _FLOOD),
    "http part header": (_MULTIPART, _FLOOD),
    "http picture": (b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n" + _JPEG_BEGUN, b"\x12" * 4096),
    "http noise": (b"HTTP/1.1 200 OK\r\n\r\n", bytes(range(256)) * 16),
}


class _Camera(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while request := self._request():
                name = request[0].split()[1].rsplit("/", 1)[-1].replace("-", " ")
                if request[0].startswith("OPTIONS") and name != "rtsp header":
                    self.wfile.write(
                        b"RTSP/1.0 200 OK\r\n%s\r\nPublic: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n\r\n"
                        % self._cseq(request).encode()
                    )
                    continue
                answer, endless = COSTLY[name]
                url = f"{name.split()[0]}://127.0.0.1:{self.server.server_address[1]}/{name.replace(' ', '-')}"
                for key, value in (("cseq", self._cseq(request).partition(" ")[2]), ("self", url)):
                    answer = answer.replace(b"%%(%s)s" % key.encode(), value.encode())
                self.wfile.write(answer)
                while endless:
                    self.wfile.write(endless * 20)

    def _request(self) -> list[str]:
        lines = []
        while line := self.rfile.readline().decode().strip():
            lines.append(line)
        return lines

    def _cseq(self, request: list[str]) -> str:
        return next((line for line in request if line.lower().startswith("cseq:")), "CSeq: 1")


@contextlib.contextmanager
def costly_cameras() -> Iterator[dict[str, str]]:
    """Serve them in a process of their own; gives their addresses by name."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip()
            yield {name: f"{name.split()[0]}://127.0.0.1:{port}/{name.replace(' ', '-')}" for name in COSTLY}
        finally:
            process.kill()


if __name__ == "__main__":
    socketserver.ThreadingTCPServer.daemon_threads = True
    socketserver.ThreadingTCPServer.request_queue_size = 128  # with 5, connections that come together wait a second
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Camera) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
