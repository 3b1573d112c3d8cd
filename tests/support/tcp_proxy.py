"""What TCP proxies of tests share: they accept, connect, and reset what is open."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

CHUNK_BYTES = 65_536


class TcpProxy:
    """Listens on `port` of loopback for connections to `target`; a subclass says what passes between the two ends."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0

    def __enter__(self) -> TcpProxy:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections that are open now."""
        with self._lock:
            doomed, self._open = self._open, []
        abort(*doomed)

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        """Pass on what connection `number` says in one direction until it ends; a thread for each runs this."""
        raise NotImplementedError

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # there is nobody
                client.close()
                continue
            with self._lock:
                self._open += [client, server]
                number, self.connections = self.connections, self.connections + 1
            for ends, is_client in (((client, server), True), ((server, client), False)):
                threading.Thread(
                    target=self._run, args=(*ends, number), kwargs={"is_client": is_client}, daemon=True
                ).start()

    def _run(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            self.forward(source, sink, number, is_client=is_client)
        source.close()  # each socket is the source of exactly one thread


def abort(*connections: socket.socket) -> None:
    """End with RST, whatever is under way."""
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
