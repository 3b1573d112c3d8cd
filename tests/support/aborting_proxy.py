"""A TCP proxy that aborts connections at chosen MQTT messages."""

import contextlib
import socket
from collections.abc import Iterable

from tests.support.mqtt_wire import PUBLISH, read_packet
from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy, abort


class AbortingProxy(TcpProxy):
    """Resets the n-th connection at its `aborts[n]`-th publish: on odd n after, on even n before it is forwarded."""

    def __init__(self, port: int, aborts: Iterable[int] = ()) -> None:
        super().__init__(port)
        self._aborts = list(aborts)

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            if is_client:
                self._forward_packets(source, sink, number)
            else:
                while data := source.recv(CHUNK_BYTES):
                    sink.sendall(data)
        abort(source, sink)

    def _forward_packets(self, client: socket.socket, server: socket.socket, number: int) -> None:
        abort_at = self._aborts[number] if number < len(self._aborts) else None
        count = 0
        while True:
            received = read_packet(client)
            count += received.kind == PUBLISH
            is_last = count == abort_at
            if not is_last or number % 2:
                server.sendall(received.raw)
            if is_last:
                return
