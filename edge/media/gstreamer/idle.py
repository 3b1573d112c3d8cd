"""Notices that a source has given up without a word.

parsebin keeps errors to itself that a demuxer posts while it is being connected. A file without an index then leaves
neither an error nor an end of stream: only threads that have stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edge.media.gstreamer.binding import load

__all__ = ["elements_of", "is_idle"]


def is_idle(made: Any) -> bool:
    """Return whether no streaming thread runs on any pad inside a bin; a bin that is just being changed is busy."""
    started = load().gst.TaskState.STARTED
    iterator = made.iterate_recurse()
    while (element := _next(iterator)) is not None:
        if any(pad.get_task_state() == started for pad in element.pads):
            return False
    return _has_ended(iterator)


def elements_of(made: Any) -> Iterator[Any]:
    """Yield the elements inside a bin, or those seen until it is changed meanwhile: that is enough for now."""
    iterator = made.iterate_recurse()
    while (element := _next(iterator)) is not None:
        yield element


def _next(iterator: Any) -> Any:
    result, item = iterator.next()
    return item if result == load().gst.IteratorResult.OK else None


def _has_ended(iterator: Any) -> bool:
    """Whether a walk saw everything: one that was cut short by a change says RESYNC again and again."""
    return bool(iterator.next()[0] == load().gst.IteratorResult.DONE)
