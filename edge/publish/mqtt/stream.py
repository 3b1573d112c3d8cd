"""What lies between paho and its socket: one read and one write for many packets, and packets that paho need not see.

paho reads each packet in three calls of the socket and writes each by itself; every such call gives the interpreter up
and has to get it back.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from edge.publish.mqtt.packets import packet_bytes

__all__ = ["PacketStream", "Streams"]

# A peer that vanished without a word is noticed when sent data stays unacknowledged for so long.
_TCP_USER_TIMEOUT_MS = 15_000
_READ_BYTES = 65_536
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class PacketStream:
    """A connected socket, as far as paho uses one, and both its buffers. Used by one thread.

    What paho sends goes behind what `queue` was given. It reads what it was handed by `hand_over`, nothing else.
    """

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self._received = bytearray()
        self._unsent = bytearray()
        self._handed = b""
        self._failure: OSError | None = None
        self._has_ended = False

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the socket takes it."""
        return bool(self._unsent)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be received."""
        return self._has_ended or self._failure is not None

    @property
    def has_pending(self) -> bool:
        """Whether TLS holds data that the socket does not show any more."""
        return isinstance(self._inner, ssl.SSLSocket) and self._inner.pending() > 0

    def queue(self, packet: bytes) -> None:
        """Have this sent by the next `flush`."""
        self._unsent += packet

    def flush(self) -> bool:
        """Send what the socket takes at once; return whether that was all.

        Raises:
            OSError: when the connection is lost.
        """
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
            self._failure = error
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
        """Let paho read this packet."""
        self._handed = packet

    def recv(self, count: int) -> bytes:
        """Return bytes of the packet handed over; by paho."""
        if self._handed:
            piece, self._handed = self._handed[:count], self._handed[count:]
            return piece
        if self._failure is not None:
            raise self._failure
        if self._has_ended:
            return b""
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        """Send this after all else; by paho."""
        self._unsent += data
        self.flush()
        return len(data)

    def fileno(self) -> int:
        """Return what to wait on."""
        return self._inner.fileno()

    def setblocking(self, is_blocking: bool) -> None:
        """Hand on."""
        self._inner.setblocking(is_blocking)

    def settimeout(self, timeout_s: float | None) -> None:
        """Hand on."""
        self._inner.settimeout(timeout_s)

    def do_handshake(self) -> None:
        """Hand on, where there is one."""
        if isinstance(self._inner, ssl.SSLSocket):
            self._inner.do_handshake()

    def close(self) -> None:
        """Close the socket."""
        self._inner.close()


class Streams:
    """Stands where paho wants an SSL context, and gives it a stream over the socket that it has connected.

    Attributes:
        latest: the stream made last; paho leaves it open when the handshake fails.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self.check_hostname = True if context is None else context.check_hostname  # else paho would do it
        self.latest: PacketStream | None = None

    def wrap_socket(self, plain: socket.socket, **options: Any) -> PacketStream:
        """Return the stream; by paho."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.latest = PacketStream(plain if self._context is None else self._context.wrap_socket(plain, **options))
        return self.latest
