"""A TCP proxy that can lose what a broker answers, and refuse connections."""

import socket

from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy, abort


class SilencingProxy(TcpProxy):
    """`silence` holds for the connections that are open then; `refuse` for all new ones."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.refuse = False
        self._silent_below = 0

    def silence(self) -> None:
        """Lose the answers from now on; what the client says still arrives."""
        self._silent_below = self.connections

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        while not self.refuse and (data := source.recv(CHUNK_BYTES)):
            if is_client or number >= self._silent_below:
                sink.sendall(data)
        abort(source, sink)
