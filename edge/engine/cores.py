"""How many cores this process may use: those that the system gives it, or fewer where somebody shares them out."""

from __future__ import annotations

import os

__all__ = ["available_cores", "use_at_most"]

_most: list[int] = []


def available_cores() -> int:
    given = len(os.sched_getaffinity(0))
    return min(given, *_most) if _most else given


def use_at_most(cores: int) -> None:
    """Let engines that are made from now on use so many cores at most: others run beside this process."""
    _most[:] = [max(1, cores)]
