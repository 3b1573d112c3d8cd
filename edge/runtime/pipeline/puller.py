"""One thread per stream: reads frames and puts them into the open batch."""

from __future__ import annotations

import logging
import threading
import time

from edge.errors import EdgeError, EndOfStream
from edge.protocols import FrameSource
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.types import DropReason

__all__ = ["Puller"]

_log = logging.getLogger(__name__)
_READ_TIMEOUT_S = 0.2


class Puller:
    """Moves the frames of one source into batches until the source ends or `stop` is called.

    A source that breaks ends its own puller only; `failure` then says why.
    """

    def __init__(self, source: FrameSource, batcher: Batcher, counters: FrameCounters) -> None:
        self.source = source
        self._batcher = batcher
        self._counters = counters
        self._stopping = threading.Event()
        self._has_joined = False
        self._thread = threading.Thread(target=self._run, name=f"pull-{source.stream}", daemon=True)
        self.name = self._thread.name
        self.failure: str | None = None
        self.in_source_since_ns: int | None = None  # monotonic; None while it is not in a call of its source

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the frame in hand."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Return whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        stream = self.source.stream
        try:
            self._in_source()
            self.source.open()
            while not self._stopping.is_set():
                self._move_one()
        except EndOfStream:
            _log.info("stream ended stream=%s", stream)
        except EdgeError as error:
            self.failure = str(error)
            _log.warning("stream failed stream=%s reason=%s", stream, error)
        except Exception as error:  # the border of this thread: the other streams go on
            self.failure = f"internal error: {error!r}"
            _log.exception("stream failed stream=%s", stream)
        finally:
            self._batcher.leave(stream)
            self._in_source()
            self.source.close()
            self.in_source_since_ns = None

    def _in_source(self) -> None:
        self.in_source_since_ns = time.monotonic_ns()

    def _move_one(self) -> None:
        self._in_source()
        frame = self.source.read(_READ_TIMEOUT_S)
        self.in_source_since_ns = None
        if frame is None:
            self._batcher.leave(self.source.stream)
            self._has_joined = False
            return
        stream, is_live = self.source.stream, self.source.is_live
        if not self._has_joined:
            self._batcher.join(stream, is_live=is_live)
            self._has_joined = True
        ticket = self._batcher.reserve(stream, is_live=is_live)
        if ticket is None:
            self._counters.dropped(stream, DropReason.STOPPED)
            return
        try:
            self._batcher.fill(ticket, frame)
        except BaseException:
            self._counters.dropped(stream, DropReason.FAILED)
            raise
