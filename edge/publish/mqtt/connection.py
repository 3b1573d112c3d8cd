"""The values of a broker connection: what is asked of it, what it allows, what happens on it."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass

__all__ = ["Acknowledged", "ConnectionEvent", "MqttLimits", "Received", "Subscribed", "Waker", "Will"]

_FAILURE = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker says in our name when we are gone."""

    topic: str
    payload: bytes
    delay_s: int = 5
    qos: int = 1
    is_retained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """What this broker allows (CONNACK)."""

    receive_maximum: int = 65_535
    packet_bytes: int | None = None
    maximum_qos: int = 1
    can_retain: bool = True


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has answered the publish with this packet id; `reason` 0x80 and more is a refusal."""

    packet_id: int
    reason: int

    @property
    def is_refused(self) -> bool:
        """Whether the message was not accepted."""
        return self.reason >= _FAILURE


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
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A number that is closed is soon another file's: nobody may write to it meanwhile.
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Make the current poll, or the next one, return at once."""
        with self._lock:
            if self._descriptor >= 0:
                with contextlib.suppress(BlockingIOError):  # called 2**64 times already
                    os.eventfd_write(self._descriptor, 1)

    def fileno(self) -> int:
        """Return what to wait on."""
        return self._descriptor

    def clear(self) -> None:
        """Forget the calls so far."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Free the descriptor; calls from now on do nothing."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
