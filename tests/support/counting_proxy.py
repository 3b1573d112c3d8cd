"""A proxy that passes all on and counts it."""

import contextlib
import socket

from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy


class CountingProxy(TcpProxy):
    """`passed_bytes` have passed, both ways together."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.passed_bytes = 0

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        while chunk := source.recv(CHUNK_BYTES):
            with self._lock:
                self.passed_bytes += len(chunk)
            sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
