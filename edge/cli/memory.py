"""How much memory the allocator may keep: GStreamer's threads come and go with each connection to a camera."""

from __future__ import annotations

import ctypes
import os

__all__ = ["limit_arenas"]

_M_ARENA_MAX = -8  # of glibc's <malloc.h>
_ARENAS = 2  # docs/adr/0011


def limit_arenas() -> None:
    """Have glibc's malloc share two arenas between all threads; before threads are started.

    Each thread gets one of its own otherwise, eight per core at most, and what is freed stays there in pieces. Does
    nothing where `MALLOC_ARENA_MAX` says how many, and where the allocator is another one.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
