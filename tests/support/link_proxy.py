"""A TCP proxy whose link is counted, can be cut, or falls silent as when a cable is pulled: nothing comes or ends."""

import contextlib
import socket

from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy


class LinkProxy(TcpProxy):
    """Forwards everything; `cut` resets what is open, `pull` lets it fall silent; `passed_bytes` came, both ways."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._pulled: set[socket.socket] = set()
        self.passed_bytes = 0

    def pull(self) -> None:
        """Let the connections that are open now fall silent; later ones work."""
        with self._lock:
            self._pulled.update(self._open)

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(CHUNK_BYTES):
                with self._lock:
                    self.passed_bytes += len(content)
                if source not in self._pulled:
                    sink.sendall(content)
        if source not in self._pulled:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
