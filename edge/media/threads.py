"""Threads that did not end when they were told to: inside a library, which the interpreter must not be ended under."""

from __future__ import annotations

import threading

__all__ = ["has_stuck_threads", "join_or_remember", "stuck_threads"]

_stuck: list[threading.Thread] = []


def join_or_remember(thread: threading.Thread, timeout_s: float) -> bool:
    """Wait for the end of `thread`; return whether it came in time."""
    thread.join(timeout_s)
    if thread.is_alive():
        _stuck.append(thread)
        return False
    return True


def stuck_threads() -> tuple[str, ...]:
    """Return the names of the threads of closed sources that still run."""
    _stuck[:] = [thread for thread in _stuck if thread.is_alive()]
    return tuple(thread.name for thread in _stuck)


def has_stuck_threads() -> bool:
    """Return whether a thread of a closed source still runs: then only a hard exit (`os._exit`) is safe."""
    return bool(stuck_threads())
