"""Just enough of MQTT's wire format for a proxy and a strict fake broker; written from the standard, not from paho."""

import socket
import struct
from dataclasses import dataclass

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
