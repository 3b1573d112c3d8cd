"""A TCP proxy that makes a broker far away."""

import queue
import socket
import threading
import time

from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy, abort


class DelayingProxy(TcpProxy):
    """Passes on each piece half of `round_trip_s` later, in both directions, as many as there are."""

    def __init__(self, port: int, *, round_trip_s: float, listen_on: int = 0) -> None:
        super().__init__(port, listen_on=listen_on)
        self._delay_s = round_trip_s / 2

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        writer = threading.Thread(target=self._write, args=(pieces, source, sink), daemon=True)
        writer.start()
        try:
            while data := source.recv(CHUNK_BYTES):
                pieces.put((time.monotonic() + self._delay_s, data))
        finally:
            pieces.put((time.monotonic() + self._delay_s, b""))
            writer.join()

    @staticmethod
    def _write(pieces: queue.SimpleQueue[tuple[float, bytes]], source: socket.socket, sink: socket.socket) -> None:
        while True:
            due_s, data = pieces.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                break
            try:
                sink.sendall(data)
            except OSError:
                break
        abort(source, sink)
