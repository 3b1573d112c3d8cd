"""TCP proxies on which happens what happens to links: they abort, silence, delay, cut, pull, or all of it by chance."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Iterable

from tests.support.mosquitto import PUBLISH, read_packet
from tests.support.tcp_server import TcpServer

CHUNK_BYTES = 65_536


class TcpProxy(TcpServer):
    """Takes connections to `target`; a subclass says what passes between the two ends."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.connections = 0

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.cut()

    def cut(self) -> None:
        """Reset all connections that are open now."""
        with self._lock:
            doomed, self._open = self._open, []
        abort(*doomed)

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        """Pass on what connection `number` says in one direction until it ends; a thread for each runs this."""
        raise NotImplementedError

    def serve(self, link: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        with self._lock:
            self._open += [link, server]
            number, self.connections = self.connections, self.connections + 1
        threading.Thread(target=self._answer, args=(server, link, number), daemon=True).start()
        self.forward(link, server, number, is_client=True)

    def _answer(self, server: socket.socket, client: socket.socket, number: int) -> None:
        with server, contextlib.suppress(OSError):
            self.forward(server, client, number, is_client=False)


def abort(*connections: socket.socket) -> None:
    """End with RST, whatever is under way."""
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)


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


class DelayingProxy(TcpProxy):
    """Passes on each piece half of `round_trip_s` later, in both directions, as many as there are."""

    def __init__(self, port: int, *, round_trip_s: float) -> None:
        super().__init__(port)
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


class ChaosProxy(TcpProxy):
    """Each connection suffers one of `FAULTS` after a random number of publishes, as long as `faults_left`.

    `cut-before` and `cut-after` reset the connection before or after a publish is passed on, `deaf` loses the answers
    first and cuts then, `frozen` passes nothing for a while and cuts, `refused` cuts at once, `far` is late by
    a round trip of 0.3 s and cut as `cut-after`, `torn` passes on half of a publish.
    """

    FAULTS = ("cut-before", "cut-after", "deaf", "frozen", "refused", "far", "torn")

    def __init__(self, port: int, *, seed: int, faults: int, most_publishes: int = 60) -> None:
        super().__init__(port)
        self.faults_left = faults
        self._rng = random.Random(seed)
        self._plans: dict[int, tuple[str, int]] = {}
        self._plan_lock = threading.Lock()
        self._most_publishes = most_publishes
        self._delay_s = 0.15

    def _plan(self, number: int) -> tuple[str, int]:
        """Return fault and publish of a connection, the same for both of its directions."""
        with self._plan_lock:
            if number not in self._plans:
                is_spared = self.faults_left <= 0
                self.faults_left -= not is_spared
                fault = "none" if is_spared else self._rng.choice(self.FAULTS)
                self._plans[number] = (fault, self._rng.randint(1, self._most_publishes))
            return self._plans[number]

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        fault, at = self._plan(number)
        if fault == "refused":
            abort(source, sink)
        elif is_client:
            self._forward_client(source, sink, fault, at)
        else:
            self._forward_broker(source, sink, fault)

    def _forward_broker(self, source: socket.socket, sink: socket.socket, fault: str) -> None:
        has_answered = False
        while data := source.recv(CHUNK_BYTES):
            if fault == "far":
                time.sleep(self._delay_s)
            if fault != "deaf" or not has_answered:  # it hears that it is connected, and nothing else
                sink.sendall(data)
            has_answered = True
        abort(source, sink)

    def _forward_client(self, client: socket.socket, server: socket.socket, fault: str, at: int) -> None:
        count = 0
        try:
            while True:
                if fault == "deaf":
                    client.settimeout(0.5)  # the window is full: nothing more comes
                received = read_packet(client)
                count += received.kind == PUBLISH
                if count < at or fault == "none":
                    server.sendall(received.raw)
                    continue
                if fault == "frozen":
                    time.sleep(0.2)
                elif fault == "torn":
                    server.sendall(received.raw[: len(received.raw) // 2])
                elif fault in ("cut-after", "far", "deaf"):
                    server.sendall(received.raw)
                return
        finally:
            abort(client, server)
