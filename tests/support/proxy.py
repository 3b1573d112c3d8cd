"""A TCP proxy that aborts connections at chosen MQTT messages."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable

from tests.support.mqtt_wire import PUBLISH, read_packet


class AbortingProxy:
    """Resets the n-th connection at its `aborts[n]`-th publish: on odd n after, on even n before it is forwarded."""

    def __init__(self, port: int, aborts: Iterable[int] = ()) -> None:
        self._target = port
        self._aborts = list(aborts)
        self.connections = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> AbortingProxy:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.abort()

    def abort(self) -> None:
        """Reset all connections now."""
        for pair in self._pairs:
            _reset(*pair)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._pairs.append((client, server))
            number, self.connections = self.connections, self.connections + 1
            abort_at = self._aborts[number] if number < len(self._aborts) else None
            threading.Thread(target=self._forward, args=(client, server, abort_at, number), daemon=True).start()
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, abort_at: int | None, number: int) -> None:
        count = 0
        with contextlib.suppress(OSError):
            while True:
                received = read_packet(client)
                count += received.kind == PUBLISH
                is_last = count == abort_at
                if not is_last or number % 2:
                    server.sendall(received.raw)
                if is_last:
                    break
        _reset(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    _reset(source, target)


def _reset(*connections: socket.socket) -> None:
    """Close with RST, whatever is under way."""
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
