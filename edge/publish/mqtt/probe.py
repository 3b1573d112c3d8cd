"""Asks a broker that is away whether it is back, at the price of a packet: a connection to it is tried more rarely."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable

from edge.publish.mqtt.endpoint import Endpoint

__all__ = ["LOOK_S", "Return", "line_to"]

LOOK_S = 0.2  # how often to call `has_come` while there is nothing else to do
_EVERY_S = 2.0
_ANSWER_S = 1.0
_SPREAD_S = 1.0


def line_to(endpoint: Endpoint) -> socket.socket | None:
    """Return a connection on which nothing is said, which breaks when the listener ends; None: there is none.

    Takes a second at most, and as long as a name takes to be looked up.
    """
    try:
        line = socket.create_connection((endpoint.host, endpoint.port), _ANSWER_S)
    except (OSError, ValueError):  # ValueError: a name that cannot be one
        return None
    line.setblocking(False)
    return line


def _has_ended(line: socket.socket) -> bool:
    try:
        return not line.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Return:
    """Watches for a broker that is away, in the thread that waits for it, who closes it.

    A broker that listens all the time tells nothing by that; whether it is of use shows a connection only. One that has
    just served and is killed drops its connections a moment before it stops to listen, and may be back before it is
    asked again: where it `has_served`, it is held to account by a connection of its own. `is_away`: nothing listens
    is known. Looks and returns are spread by `uniform`: the devices of one broker do not all come back at once.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        is_away: bool,
        has_served: bool = False,
        line_to: Callable[[Endpoint], socket.socket | None] = line_to,
        uniform: Callable[[float, float], float] = random.uniform,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._line_to = line_to
        self._uniform = uniform
        self._now_s = now_s
        self._line = None if is_away else line_to(endpoint)
        self._is_away = self._line is None
        if not has_served:
            self.close()
        self._has_come = False
        self._next_s = 0.0
        self._plan_next()

    def has_come(self) -> bool:
        """Return whether it was away and is there again; to be called again and again, looks when it is time to."""
        if self._line is not None and _has_ended(self._line):
            self.close()
            self._is_away = True
        if self._now_s() < self._next_s or self._has_come:
            return self._has_come and self._now_s() >= self._next_s
        line = self._line_to(self._endpoint)
        is_there = line is not None
        if line is not None:
            line.close()
        self._has_come, self._is_away = is_there and self._is_away, not is_there
        self._plan_next()
        return False

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _plan_next(self) -> None:
        wait_s = self._uniform(0, _SPREAD_S) if self._has_come else self._uniform(_EVERY_S / 2, _EVERY_S)
        self._next_s = self._now_s() + wait_s
