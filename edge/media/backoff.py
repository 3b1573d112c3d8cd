"""How long a stream that has failed waits before it is connected to again."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["CameraBackoff"]

FIRST_S = 0.5
LONGEST_S = 3.0
HEALTHY_S = 10.0
REFUSED_S = 30.0
CHEAP_S = 0.5
COST_FACTOR = 30.0  # what no picture comes of takes a thirtieth of a core at most
JITTER = 0.2


class CameraBackoff:
    """Doubles the wait with every failure, up to a limit.

    The limit is low: with 30 s, a camera whose server flapped stayed dark for half a minute after the server was back.
    It can be: of a server that does not even answer, no connection is tried (`ProbeWatch`).
    Jitter keeps the cameras of one switch from coming back all at once.
    """

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._next_s = FIRST_S

    def delay_s(self, *, streamed_s: float, is_refused: bool, cost_s: float = 0.0) -> float:
        """Return the wait after a connection that delivered frames for `streamed_s` seconds.

        Args:
            streamed_s: from 10 s on, the connection counts as healthy and the doubling begins anew.
            is_refused: the camera said no (401, 404): asking often gets accounts locked, so wait long.
            cost_s: CPU seconds that the connection took without giving anything for them.
        """
        if streamed_s >= HEALTHY_S:
            self._next_s = FIRST_S
        wait_s = REFUSED_S if is_refused else self._next_s
        if cost_s > CHEAP_S:
            wait_s = max(wait_s, cost_s * COST_FACTOR)
        self._next_s = min(LONGEST_S, self._next_s * 2)
        return wait_s * self._uniform(1 - JITTER, 1 + JITTER)
