"""An RTSP camera behind TLS that writes its own name into all that it answers, whatever it was called by."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.tcp_server import TcpServer


class NamedCamera(TcpServer):
    """Stands before a plain server on the loopback; as cameras do, it names tracks by whole addresses.

    Args:
        port: of the plain server.
        name: what it calls itself, such as `127.0.0.1:8322`; None: as it was called by the network.
        sends_on: a path that it sends on from, and where to.
    """

    def __init__(
        self, port: int, tls: tuple[Path, Path], *, name: str | None = None, sends_on: tuple[str, str] | None = None
    ) -> None:
        super().__init__()
        self._plain, self._sends_on = port, sends_on
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*tls)
        self.name = name or f"127.0.0.1:{self.port}"

    def serve(self, link: socket.socket) -> None:
        with (
            contextlib.suppress(EOFError),
            self._context.wrap_socket(link, server_side=True) as outside,
            socket.create_connection(("127.0.0.1", self._plain)) as inside,
        ):
            threading.Thread(target=self._answer, args=(inside, outside), daemon=True).start()
            for head, body in _messages(outside.makefile("rb")):
                moved = self._moved(head)
                if moved:
                    outside.sendall(moved)
                else:
                    inside.sendall(self._inwards(head) + body)
            inside.shutdown(socket.SHUT_RDWR)

    def _moved(self, head: bytes) -> bytes:
        if self._sends_on is None or not re.match(f"DESCRIBE \\S+{self._sends_on[0]} RTSP".encode(), head):
            return b""
        sequence = re.search(rb"CSeq: *(\d+)", head, re.IGNORECASE)
        assert sequence
        where = f"rtsps://{self.name}{self._sends_on[1]}".encode()
        return b"RTSP/1.0 302 Moved\r\nCSeq: %s\r\nLocation: %s\r\n\r\n" % (sequence[1], where)

    def _inwards(self, head: bytes) -> bytes:
        """The first line alone: what a login was reckoned with stays as it is."""
        return re.sub(rb"rtsps?://[^/\s\"]+", f"rtsp://127.0.0.1:{self._plain}".encode(), head, count=1)

    def _answer(self, inside: socket.socket, outside: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError, EOFError):
            base = b""
            for head, body in _messages(inside.makefile("rb")):
                if not head.startswith(b"$"):
                    head = re.sub(rb"rtsps?://[^/\s\"]+", f"rtsps://{self.name}".encode(), head)
                    based = re.search(rb"Content-Base: *(\S+)", head, re.IGNORECASE)
                    base = based[1].rstrip(b"/") if based else base
                    body = re.sub(rb"a=control:(?=stream)", b"a=control:" + base + b"/", body)
                    head = re.sub(rb"(Content-Length: *)\d+", rb"\g<1>%d" % len(body), head, flags=re.IGNORECASE)
                outside.sendall(head + body)


def _messages(stream: Any) -> Iterator[tuple[bytes, bytes]]:
    """Yield heads and bodies; a packet of media is a head alone, begun with `$`."""
    while first := stream.read(1):
        if first == b"$":
            rest = stream.read(3)
            yield first + rest + stream.read(int.from_bytes(rest[1:], "big")), b""
            continue
        lines = [first + stream.readline()]
        while lines[-1].strip():
            lines.append(stream.readline())
        head = b"".join(lines)
        length = re.search(rb"Content-Length: *(\d+)", head, re.IGNORECASE)
        yield head, stream.read(int(length[1])) if length else b""
