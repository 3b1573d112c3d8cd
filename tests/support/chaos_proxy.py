"""A TCP proxy between a publisher and its broker on which everything happens that happens to links."""

import random
import socket
import threading
import time

from tests.support.mqtt_wire import PUBLISH, read_packet
from tests.support.tcp_proxy import CHUNK_BYTES, TcpProxy, abort


class ChaosProxy(TcpProxy):
    """Each connection suffers one of `FAULTS` after a random number of publishes, as long as `faults_left`.

    `cut-before` and `cut-after` reset the connection before or after a publish is passed on, `deaf` loses the answers
    first and cuts then, `frozen` passes nothing for a while and cuts, `refused` cuts at once, `far` is late by
    `round_trip_s` and cut as `cut-after`, `torn` passes on half of a publish.
    """

    FAULTS = ("cut-before", "cut-after", "deaf", "frozen", "refused", "far", "torn")

    def __init__(
        self, port: int, *, seed: int, faults: int, most_publishes: int = 60, round_trip_s: float = 0.3
    ) -> None:
        super().__init__(port)
        self.faults_left = faults
        self._rng = random.Random(seed)
        self._plans: dict[int, tuple[str, int]] = {}
        self._plan_lock = threading.Lock()
        self._most_publishes = most_publishes
        self._delay_s = round_trip_s / 2

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
