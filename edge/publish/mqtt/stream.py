"""Stream between paho and its socket: one read and one write for many packets, and packets that paho need not see.

paho reads each packet in three calls of the socket and writes each by itself; every such call gives the interpreter up
and has to get it back. The two packets that every message needs are made and read here: paho takes longer for them than
all the rest. Source: MQTT 5.0, 2.1, 2.2.2, 3.3 and 3.4; MQTT 3.1.1 has the same without properties.
"""

from __future__ import annotations

import functools
import socket
import ssl
from dataclasses import dataclass
from typing import Any

__all__ = ["Acknowledged", "PacketStream", "Streams", "acknowledged_from", "packed_properties", "publish_packet"]

_PUBLISH, _PUBACK = 0x30, 0x40
_JSON = b"\x01\x01\x03\x00\x10application/json"  # payload format: text; content type
_MOST_LENGTH_BYTES = 4
# A peer that vanished without a word is noticed when sent data stays unacknowledged for so long.
_TCP_USER_TIMEOUT_MS = 15_000
_READ_BYTES = 65_536
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has answered the publish with this packet id; `reason` 0x80 and more is a refusal."""

    packet_id: int
    reason: int


class PacketStream:
    """A connected socket, as far as paho uses one, and both its buffers. Used by one thread.

    What paho sends goes behind what `queue` was given. It reads what it was handed by `hand_over`, nothing else.
    `failure` is what ended the connection, where that was no goodbye.
    """

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self._received = bytearray()
        self._unsent = bytearray()
        self._handed = b""
        self.failure: OSError | None = None
        self._has_ended = False

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be received."""
        return self._has_ended or self.failure is not None

    @property
    def has_pending(self) -> bool:
        """Whether TLS holds data that the socket does not show any more."""
        return isinstance(self._inner, ssl.SSLSocket) and self._inner.pending() > 0

    def queue(self, packet: bytes) -> None:
        self._unsent += packet

    def flush(self) -> bool:
        """Send what the socket takes at once; return whether that was all, or raise OSError."""
        if self._unsent:
            try:
                sent = self._inner.send(self._unsent)
            except _NOT_YET:
                return False
            del self._unsent[:sent]
        return not self._unsent

    def receive(self) -> None:
        """Take what has come; a loss is told to paho when it reads."""
        try:
            came = self._inner.recv(_READ_BYTES)
        except _NOT_YET:
            return
        except OSError as error:
            self.failure = error
            return
        self._has_ended = not came
        self._received += came

    def next_packet(self) -> bytes | None:
        """Return the next packet that is here as a whole; None where there is none."""
        size = packet_bytes(self._received)
        if size is None or size > len(self._received):
            return None
        packet = bytes(self._received[:size])
        del self._received[:size]
        return packet

    def hand_over(self, packet: bytes) -> None:
        self._handed = packet

    def recv(self, count: int) -> bytes:
        if self._handed:
            piece, self._handed = self._handed[:count], self._handed[count:]
            return piece
        if self.failure is not None:
            raise self.failure
        if self._has_ended:
            return b""
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        self._unsent += data
        self.flush()
        return len(data)

    def fileno(self) -> int:
        return self._inner.fileno()

    def setblocking(self, is_blocking: bool) -> None:
        self._inner.setblocking(is_blocking)

    def settimeout(self, timeout_s: float | None) -> None:
        self._inner.settimeout(timeout_s)

    def do_handshake(self) -> None:
        if isinstance(self._inner, ssl.SSLSocket):
            self._inner.do_handshake()

    def close(self) -> None:
        self._inner.close()


class Streams:
    """Stands where paho wants an SSL context, and gives it a stream over the socket that it has connected.

    paho leaves the `latest` open when the handshake fails.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self.check_hostname = True if context is None else context.check_hostname  # else paho would do it
        self.latest: PacketStream | None = None

    def wrap_socket(self, plain: socket.socket, **options: Any) -> PacketStream:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.latest = PacketStream(plain if self._context is None else self._context.wrap_socket(plain, **options))
        return self.latest


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
    for pair in user:
        packed += _packed_pair(pair)
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
    """None for any other packet than a well-formed PUBACK."""
    at = 1
    while packet[at] > 127:
        at += 1
    body = packet[at + 1 :]
    if packet[0] != _PUBACK or len(body) < 2 or (len(body) > 2 and not is_v5):
        return None
    return Acknowledged(int.from_bytes(body[:2], "big"), body[2] if len(body) > 2 else 0)


@functools.lru_cache(maxsize=64)  # of all but the number there are few
def _packed_pair(pair: tuple[str, str]) -> bytes:
    texts = [text.encode() for text in pair]
    return b"\x26" + b"".join(len(text).to_bytes(2, "big") + text for text in texts)


def _packed_length(length: int) -> bytes:
    """Return a variable byte integer."""
    packed = bytearray()
    while True:
        length, digit = divmod(length, 128)
        packed.append(digit | (128 if length else 0))
        if not length:
            return bytes(packed)
