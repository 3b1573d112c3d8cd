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
    """Return whether no streaming thread runs on any pad inside a bin."""
    started = load().gst.TaskState.STARTED
    return all(pad.get_task_state() != started for element in elements_of(made) for pad in element.pads)


def elements_of(made: Any) -> Iterator[Any]:
    """Yield the elements inside a bin, or those seen until it is changed meanwhile: that is enough for now."""
    gst = load().gst
    iterator = made.iterate_recurse()
    while True:
        result, item = iterator.next()
        if result != gst.IteratorResult.OK:
            return
        yield item
