"""A TCP proxy that ends what a server says after so many bytes: in the middle of whatever that is."""

import socket
import time

from tests.support.tcp_proxy import TcpProxy, abort


class CuttingProxy(TcpProxy):
    """Passes on `most_bytes` of the server on each connection, and closes it then; with RST where `is_reset`."""

    def __init__(self, target: int, *, most_bytes: int, is_reset: bool = False) -> None:
        super().__init__(target)
        self._most_bytes, self._is_reset = most_bytes, is_reset

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        left = self._most_bytes
        try:
            while data := source.recv(1000):
                sink.sendall(data if is_client else data[:left])
                left -= 0 if is_client else len(data)
                if left <= 0:
                    break
            if not is_client and not self._is_reset:
                sink.shutdown(socket.SHUT_WR)
                time.sleep(0.3)  # what was passed on is read before the other side hears of an end
        finally:
            abort(source, sink)
