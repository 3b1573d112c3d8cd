"""Several things tried at once, each of which may hang: who waits has an answer for each in time, or is interrupted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from edge.deadline import Deadline
from edge.errors import EdgeError, SourceError
from edge.media.threads import join_or_remember

__all__ = ["Attempt", "side_by_side"]

T = TypeVar("T")
Attempt = Callable[[Callable[[], bool]], T]
"""Gets a function that tells whether anybody still waits; raises `EdgeError` where it fails."""

_AT_ONCE = 32
_GRACE_S = 0.5  # for what notices that it is no longer waited for


def side_by_side(attempts: Mapping[str, Attempt[T]], *, each_s: float) -> dict[str, T | EdgeError]:
    """Return each attempt's result by name, in their order; at most 32 run at once, each is given up after `each_s`."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in attempts:
        waiting.put(name)
    found: dict[str, T | EdgeError] = {}
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            found[name] = _outcome(attempts[name], stop.is_set)

    threads = [
        threading.Thread(target=work, name=f"attempt {number}", daemon=True)
        for number in range(min(_AT_ONCE, len(attempts)))
    ]
    until = Deadline.after(each_s * -(-len(attempts) // _AT_ONCE))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(until.left_s)
    finally:
        stop.set()
        grace = Deadline.after(_GRACE_S)
        for thread in threads:
            if thread.ident is not None:
                join_or_remember(thread, grace.left_s)
    return {name: found.get(name, SourceError(f"no answer within {each_s:g} s")) for name in attempts}


def _outcome(attempt: Attempt[T], is_stopped: Callable[[], bool]) -> T | EdgeError:
    try:
        return attempt(is_stopped)
    except EdgeError as error:
        return error
    except Exception as error:  # the border of a thread
        return SourceError(f"{type(error).__name__} while it was tried: {error}")
