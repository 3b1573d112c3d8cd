"""A strict broker of a few lines: it can refuse, limit and count what mosquitto does not.

Just enough of MQTT's wire format for it and for proxies; written from the standard, not from paho."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.tcp_server import TcpServer


@dataclass
class Behaviour:
    """What it does; the defaults accept everything.

    `on_v5` is `accept`, `refuse` as MQTT v3.1.1 says it, `refuse-in-v5`, `close`, or what it says.
    """

    on_v5: str | bytes = "accept"
    connack_reason: int = 0
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    can_retain: bool = True
    maximum_qos: int | None = None
    disconnect_reason: int | None = None
    puback_reason: Callable[[Publish], int] = field(default=lambda publish: 0)


class FakeBroker(TcpServer):
    """Acknowledges late, so that too many messages on their way are seen."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        super().__init__()
        self.behaviour = behaviour or Behaviour()
        self.connects: list[bytes] = []
        self.connected_at_s: list[float] = []
        self.accepted: list[Publish] = []
        self.violations: list[str] = []
        self._connections: list[socket.socket] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.drop()
        for thread in self._threads:
            thread.join(60)

    def drop(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self, connection: socket.socket) -> None:
        self._connections.append(connection)
        first = read_packet(connection)
        assert first.kind == CONNECT
        self.connects.append(first.body)
        self.connected_at_s.append(time.monotonic())
        version = first.body[6]
        if not self._answer_connect(connection, version):
            return
        if self.behaviour.disconnect_reason is not None:
            connection.sendall(packet(DISCONNECT, bytes([self.behaviour.disconnect_reason])))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):  # closing with unread data would reset what we just said
                pass
            return
        self._serve_packets(connection, version)

    def _answer_connect(self, connection: socket.socket, version: int) -> bool:
        behaviour = self.behaviour
        if version == 5 and behaviour.on_v5 != "accept":
            if behaviour.on_v5 == "refuse":
                connection.sendall(packet(CONNACK, b"\0\1"))
            elif behaviour.on_v5 == "refuse-in-v5":
                connection.sendall(packet(CONNACK, b"\0\x84\0"))
            elif isinstance(behaviour.on_v5, bytes):
                connection.sendall(behaviour.on_v5)
            return False
        properties = self._connack_properties() if version == 5 else b""
        connection.sendall(packet(CONNACK, bytes([0, behaviour.connack_reason]) + properties))
        return behaviour.connack_reason == 0

    def _connack_properties(self) -> bytes:
        behaviour, found = self.behaviour, b""
        if behaviour.receive_maximum is not None:
            found += b"\x21" + struct.pack("!H", behaviour.receive_maximum)
        if behaviour.maximum_packet_size is not None:
            found += b"\x27" + struct.pack("!I", behaviour.maximum_packet_size)
        if not behaviour.can_retain:
            found += b"\x25\0"
        if behaviour.maximum_qos is not None:
            found += b"\x24" + bytes([behaviour.maximum_qos])
        return bytes([len(found)]) + found

    def _serve_packets(self, connection: socket.socket, version: int) -> None:
        outstanding: list[Publish] = []
        connection.settimeout(0.01)
        while True:
            try:
                received = read_packet(connection)
            except TimeoutError:
                for publish in outstanding:
                    self._acknowledge(connection, publish, version)
                outstanding.clear()
                continue
            if received.kind == PINGREQ:
                connection.sendall(packet(PINGRESP, b""))
            elif received.kind == DISCONNECT:
                return
            elif received.kind == SUBSCRIBE:
                connection.sendall(packet(SUBACK, received.body[:2] + (b"\0\1" if version == 5 else b"\1")))
            elif received.kind == PUBLISH:
                publish = parse_publish(received, version=version)
                self._check(received, publish, len(outstanding) + 1)
                if publish.qos == 0:
                    self.accepted.append(publish)
                else:
                    outstanding.append(publish)

    def _check(self, received: Packet, publish: Publish, outstanding: int) -> None:
        behaviour = self.behaviour
        if outstanding > (behaviour.receive_maximum or 65_535):
            self.violations.append(f"{outstanding} on their way")
        if len(received.raw) > (behaviour.maximum_packet_size or 1 << 28):
            self.violations.append(f"packet of {len(received.raw)} bytes")
        if publish.is_retained and not behaviour.can_retain:
            self.violations.append("retained")
        if publish.qos > (1 if behaviour.maximum_qos is None else behaviour.maximum_qos):
            self.violations.append(f"QoS {publish.qos}")

    def _acknowledge(self, connection: socket.socket, publish: Publish, version: int) -> None:
        reason = self.behaviour.puback_reason(publish) if version == 5 else 0
        body = struct.pack("!H", publish.packet_id) + (bytes([reason]) if version == 5 else b"")
        if reason < 0x80:
            self.accepted.append(publish)
        connection.sendall(packet(PUBACK, body))


CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 1, 2, 3, 4, 8, 9, 12, 13, 14


@dataclass(frozen=True)
class Packet:
    kind: int
    flags: int
    body: bytes
    raw: bytes


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def read_packet(connection: socket.socket) -> Packet:
    raw = read_exactly(connection, 1)
    length, shift = 0, 0
    while True:
        byte = read_exactly(connection, 1)
        raw += byte
        length |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            break
    body = read_exactly(connection, length)
    return Packet(raw[0] >> 4, raw[0] & 15, body, raw + body)


def packet(kind: int, body: bytes, flags: int = 0) -> bytes:
    length, head = len(body), bytes([kind << 4 | flags])
    while True:
        length, digit = divmod(length, 128)
        head += bytes([digit | (128 if length else 0)])
        if not length:
            return head + body


def text_at(body: bytes, offset: int) -> tuple[bytes, int]:
    """Return a length-prefixed field and the offset behind it."""
    (length,) = struct.unpack_from("!H", body, offset)
    return body[offset + 2 : offset + 2 + length], offset + 2 + length


@dataclass(frozen=True)
class Publish:
    topic: str
    packet_id: int
    qos: int
    is_retained: bool
    is_duplicate: bool
    payload: bytes


def parse_publish(received: Packet, *, version: int) -> Publish:
    topic, offset = text_at(received.body, 0)
    qos = received.flags >> 1 & 3
    packet_id = 0
    if qos:
        (packet_id,) = struct.unpack_from("!H", received.body, offset)
        offset += 2
    if version == 5:
        length, shift = 0, 0
        while True:
            byte = received.body[offset]
            offset += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        offset += length
    return Publish(
        topic.decode(), packet_id, qos, bool(received.flags & 1), bool(received.flags & 8), received.body[offset:]
    )
