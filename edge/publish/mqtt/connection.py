"""The values of a broker connection: what is asked of it, what it allows, what happens on it."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

__all__ = ["Acknowledged", "ConnectionEvent", "MqttLimits", "Received", "Subscribed", "Waker", "Will"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """The Will: published by the broker in our name when we are gone."""

    topic: str
    payload: bytes
    qos: int = 1
    is_retained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits of this broker (CONNACK)."""

    receive_maximum: int = 65_535
    packet_bytes: int | None = None
    maximum_qos: int = 1
    can_retain: bool = True


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has answered the publish with this packet id; `reason` 0x80 and more is a refusal."""

    packet_id: int
    reason: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message of one of our subscriptions."""

    topic: str
    payload: bytes
    is_retained: bool


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The broker has answered a subscription."""

    is_refused: bool


ConnectionEvent = Acknowledged | Received | Subscribed


class Waker:
    """Ends a `Connection.poll` of another thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the current poll, or the next one, return at once."""
        with contextlib.suppress(OSError):  # full of calls already, or closed
            self._writer.send(b"\0")

    def fileno(self) -> int:
        return self._reader.fileno()

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(65_536)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
