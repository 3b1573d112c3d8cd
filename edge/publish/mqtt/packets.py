"""The two packets of MQTT that every message needs, made and read by us: paho takes longer for them than all the rest.

Source: MQTT 5.0, 2.1, 2.2.2, 3.3 and 3.4; MQTT 3.1.1 has the same without properties.
"""

from __future__ import annotations

from edge.publish.mqtt.connection import Acknowledged

__all__ = ["LARGEST_ID", "acknowledged_from", "packet_bytes", "packed_properties", "publish_packet"]

LARGEST_ID = 65_535
_PUBLISH, _PUBACK = 0x30, 0x40
_JSON = b"\x01\x01\x03\x00\x10application/json"  # payload format: text; content type
_MOST_LENGTH_BYTES = 4


def publish_packet(
    topic: str, payload: bytes, *, packet_id: int | None, is_retained: bool, properties: bytes = b""
) -> bytes:
    """Return a PUBLISH: of QoS 1 with a packet id, of QoS 0 without; `properties` with their length, none before v5."""
    name = topic.encode()
    number = b"" if packet_id is None else packet_id.to_bytes(2, "big")
    flags = _PUBLISH | (0 if packet_id is None else 2) | is_retained
    length = 2 + len(name) + len(number) + len(properties) + len(payload)
    head = bytes((flags,)) + _packed_length(length) + len(name).to_bytes(2, "big")
    return b"".join((head, name, number, properties, payload))


def packed_properties(expiry_s: int | None = None, user: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the properties of a JSON message, with their length."""
    packed = _JSON
    if expiry_s is not None:
        packed += b"\x02" + expiry_s.to_bytes(4, "big")
    for key, value in user:
        packed += b"\x26" + _packed_text(key) + _packed_text(value)
    return _packed_length(len(packed)) + packed


def packet_bytes(received: bytes | bytearray) -> int | None:
    """Return how long the packet is that begins here, None where that is not here yet; all of it if it is none."""
    length, shift = 0, 0
    for at, digit in enumerate(received[1 : 1 + _MOST_LENGTH_BYTES], start=2):
        length |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return at + length
    return len(received) if shift == 7 * _MOST_LENGTH_BYTES else None


def acknowledged_from(packet: bytes, *, is_v5: bool) -> Acknowledged | None:
    """Return what a well-formed PUBACK says; None for any other packet."""
    at = 1
    while packet[at] > 127:
        at += 1
    body = packet[at + 1 :]
    if packet[0] != _PUBACK or len(body) < 2 or (len(body) > 2 and not is_v5):
        return None
    return Acknowledged(int.from_bytes(body[:2], "big"), body[2] if len(body) > 2 else 0)


def _packed_text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packed_length(length: int) -> bytes:
    """Return a variable byte integer."""
    packed = bytearray()
    while True:
        length, digit = divmod(length, 128)
        packed.append(digit | (128 if length else 0))
        if not length:
            return bytes(packed)
