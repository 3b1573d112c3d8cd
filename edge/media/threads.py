"""Threads that did not end when asked: inside a library, which the interpreter must not be ended under."""

from __future__ import annotations

import contextlib
import threading
import time

from edge.protocols import FrameSource
from edge.types import StreamId

__all__ = ["Effort", "close_beside", "has_stuck_threads", "join_or_remember", "stuck_streams"]

_stuck: list[tuple[StreamId | None, threading.Thread]] = []
_changing = threading.Lock()


def join_or_remember(thread: threading.Thread, timeout_s: float, stream: StreamId | None = None) -> bool:
    """Wait for the end of a `thread`, of a source of `stream` where there is one; return whether it came in time."""
    thread.join(timeout_s)
    if thread.is_alive():
        with _changing:
            _stuck.append((stream, thread))
        return False
    return True


def close_beside(source: FrameSource, timeout_s: float) -> bool:
    """Close a source in a helper thread, as rtspsrc is known to hang now and then; return whether it came in time."""
    helper = threading.Thread(target=source.close, name=f"teardown {source.stream}", daemon=True)
    helper.start()
    return join_or_remember(helper, timeout_s, source.stream)


def stuck_streams() -> tuple[StreamId, ...]:
    """Return the streams of closed sources whose threads still run, one entry for each thread."""
    return tuple(stream for stream in _owners() if stream is not None)


def has_stuck_threads() -> bool:
    """Return whether a thread of a closed source still runs: then only a hard exit (`os._exit`) is safe."""
    return bool(_owners())


def _owners() -> list[StreamId | None]:
    with _changing:
        _stuck[:] = [(stream, thread) for stream, thread in _stuck if thread.is_alive()]
        return [stream for stream, _ in _stuck]


class Effort:
    """CPU time of a thread, and how much of it has led to nothing yet."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._spent_s = self._fruitful_s = 0.0

    def begin(self) -> None:
        """From now on it is that of the thread that calls."""
        if self._clock is None:
            # CPUCLOCK_SCHED of a thread: of linux/posix-timers.h, what pthread_getcpuclockid returns
            self._clock = (~threading.get_native_id() << 3) | 6

    def bears_fruit(self) -> None:
        """Forget the time spent up to now: it has led to something."""
        self._fruitful_s = self._total_s()

    def end(self) -> None:
        """The thread that calls is about to end."""
        self._total_s()
        self._clock = None

    @property
    def fruitless_s(self) -> float:
        """CPU seconds since `bears_fruit`."""
        return self._total_s() - self._fruitful_s

    def _total_s(self) -> float:
        clock = self._clock  # its thread may end while another asks
        if clock is not None:
            with contextlib.suppress(OSError):
                self._spent_s = time.clock_gettime(clock)
        return self._spent_s
