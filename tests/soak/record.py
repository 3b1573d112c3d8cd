"""What the broker has acknowledged to the service: what it takes along when it is killed is not the service's loss."""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from tests.support.mosquitto import PUBACK, PUBLISH, Packet, parse_publish, read_packet
from tests.support.promise import Account, Reading
from tests.support.tcp_proxy import TcpProxy

REACH_S = 10.0  # the broker saves what it holds every second; it says so for what was acknowledged this long before
_KINDS = ("detections", "replay", "gaps")


@dataclass(slots=True)
class Taken:
    """What brokers that were killed may have taken along: numbers, and numbers that were declared lost."""

    received: dict[Account, set[int]] = field(default_factory=dict)
    declared: dict[Account, set[int]] = field(default_factory=dict)

    def add(self, topic: str, payload: bytes) -> None:
        reading = Reading()
        reading.enter(topic, payload)
        for account, numbers in reading.found.received.items():
            self.received.setdefault(account, set()).update(numbers)
        for account, declared in reading.found.declared.items():
            self.declared.setdefault(account, set()).update(declared)

    def all(self) -> dict[Account, set[int]]:
        """Return the numbers that a subscriber need neither have received nor know to be lost."""
        accounts = self.received.keys() | self.declared.keys()
        return {one: self.received.get(one, set()) | self.declared.get(one, set()) for one in accounts}


class Record(TcpProxy):
    """Stands between the service and the broker, and passes on everything; away while the broker is.

    Attributes:
        taken: what killed brokers may have taken along.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.taken = Taken()
        self._waiting: dict[tuple[int, int], tuple[str, bytes]] = {}
        self._acknowledged: deque[tuple[float, str, bytes]] = deque()
        self._record_lock = threading.Lock()

    def come_back(self, *, was_killed: bool) -> None:
        with self._record_lock:
            for _, topic, payload in self._acknowledged if was_killed else ():
                self.taken.add(topic, payload)
            self._waiting.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._listen, daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket, number: int, *, is_client: bool) -> None:
        try:
            while True:
                received = read_packet(source)
                if is_client and received.kind == PUBLISH:
                    self._on_publish(number, received)
                elif not is_client and received.kind == PUBACK:
                    self._on_acknowledged(number, received.body)
                sink.sendall(received.raw)
        except ConnectionError:
            pass
        finally:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _on_publish(self, number: int, received: Packet) -> None:
        one = parse_publish(received, version=5)
        if one.topic.rpartition("/")[2] not in _KINDS:
            return
        with self._record_lock:
            self._waiting[number, one.packet_id] = (one.topic, one.payload)

    def _on_acknowledged(self, number: int, body: bytes) -> None:
        (packet_id,) = struct.unpack_from("!H", body)
        is_refused = len(body) > 2 and body[2] >= 0x80
        now = time.monotonic()
        with self._record_lock:
            message = self._waiting.pop((number, packet_id), None)
            if message is not None and not is_refused:
                self._acknowledged.append((now, *message))
            while self._acknowledged and self._acknowledged[0][0] < now - REACH_S:
                self._acknowledged.popleft()
