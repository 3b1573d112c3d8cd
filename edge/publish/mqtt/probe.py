"""Asks a broker that is away whether it is back, at the price of a packet: a connection to it is tried more rarely."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable

from edge.publish.mqtt.endpoint import Endpoint

__all__ = ["LOOK_S", "Listening", "Return", "accepts"]

LOOK_S = 0.2  # how often to call `has_come` while there is nothing else to do
_EVERY_S = 2.0
_ANSWER_S = 1.0
_SPREAD_S = 1.0


def accepts(endpoint: Endpoint) -> bool:
    """Return whether somebody listens there; takes a second at most, and as long as a name takes to be looked up."""
    try:
        socket.create_connection((endpoint.host, endpoint.port), _ANSWER_S).close()
    except (OSError, ValueError):  # ValueError: a name that cannot be one
        return False
    return True


class Listening:
    """A connection on which nothing is said: it breaks when whoever listens there ends."""

    def __init__(self, held: socket.socket) -> None:
        self._held = held
        held.setblocking(False)

    @staticmethod
    def of(endpoint: Endpoint) -> Listening | None:
        """Return one to an endpoint; None where nobody listens."""
        try:
            return Listening(socket.create_connection((endpoint.host, endpoint.port), _ANSWER_S))
        except (OSError, ValueError):
            return None

    def has_ended(self) -> bool:
        """Return whether it is broken; never waits."""
        try:
            return not self._held.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up."""
        self._held.close()


class Return:
    """Watches for a broker that is away, in the thread that waits for it, who closes it.

    A broker that listens all the time tells nothing by that; whether it is of use shows a connection only. One that has
    just served and is killed drops its connections a moment before it stops to listen, and may be back before it is
    asked again: it is held to account by a connection of its own.

    Args:
        endpoint: of the broker.
        is_away: that nobody listens is known; else it is asked now.
        has_served: it had taken us in before we lost it.
        listening: makes the connection that tells when it ends.
        look: says whether somebody listens.
        uniform: jitter, so that the devices of one broker do not all ask, and come back, at once.
        now_s: clock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        is_away: bool,
        has_served: bool = False,
        listening: Callable[[Endpoint], Listening | None] = Listening.of,
        look: Callable[[Endpoint], bool] = accepts,
        uniform: Callable[[float, float], float] = random.uniform,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._look = look
        self._uniform = uniform
        self._now_s = now_s
        self._listening = listening(endpoint) if has_served and not is_away else None
        self._is_away = is_away or (self._listening is None and (has_served or not look(endpoint)))
        self._has_come = False
        self._next_s = 0.0
        self._plan_next()

    def has_come(self) -> bool:
        """Return whether it was away and is there again; to be called again and again, looks when it is time to."""
        if self._listening is not None and self._listening.has_ended():
            self.close()
            self._is_away = True
        if self._now_s() < self._next_s or self._has_come:
            return self._has_come and self._now_s() >= self._next_s
        is_there = self._look(self._endpoint)
        self._has_come, self._is_away = is_there and self._is_away, not is_there
        self._plan_next()
        return False

    def close(self) -> None:
        """Watch no more."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

    def _plan_next(self) -> None:
        wait_s = self._uniform(0, _SPREAD_S) if self._has_come else self._uniform(_EVERY_S / 2, _EVERY_S)
        self._next_s = self._now_s() + wait_s
