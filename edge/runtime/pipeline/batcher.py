"""Collects frames of all streams into batches, in the engine's own canvases.

A live stream has at most one row in a batch, a file as many as it can fill. A batch is closed when no row is left, when
every stream that is up is live and has its row, when its deadline has come, or when the engine is idle and a stream
that is in it comes again: nobody is slowed down to the pace of another. While the engine is at work, the open batch
takes newer frames of live streams in place of older ones; that does not move its deadline.

Whoever holds a row only copies pixels meanwhile: no source is asked for anything, so that none can hold up the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge.types import DropReason, Frame, FrameHeader, Letterbox, StreamId
from edge.vision.letterbox import fill_border, paste

__all__ = ["Batch", "Batcher", "Row", "Ticket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One frame in a batch."""

    header: FrameHeader
    letterbox: Letterbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A closed batch: `rows[i]` lies in row i of canvas `index`, which is the taker's until it is given back."""

    index: int
    rows: tuple[Row, ...]
    closed_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ticket:
    """A reserved row."""

    stream: StreamId
    canvas: int
    row: int


@dataclass(slots=True)
class _OpenBatch:
    canvas: int
    rows: list[Row | None] = field(default_factory=list)  # None: reserved and not filled, or given up
    given_up: list[int] = field(default_factory=list)
    live_row_of: dict[StreamId, int] = field(default_factory=dict)
    writers: int = 0
    due_ns: int | None = None  # of the first frame in it; None: no frame has come yet

    @property
    def count(self) -> int:
        return len(self.rows) - len(self.given_up)


@dataclass(slots=True, eq=False)
class _Waiter:
    stream: StreamId
    is_live: bool
    ticket: Ticket | None = None
    is_served: threading.Event = field(default_factory=threading.Event)


class Batcher:
    """Thread-safe; pullers call `reserve` and `fill`, one inference thread calls `take` and `give_back`.

    Whoever makes room hands it to the first waiter that can use it and wakes only that one: with many streams, waking
    all of them for every row would cost more than decoding.
    """

    def __init__(
        self,
        canvases: Sequence[NDArray[np.uint8]],
        *,
        max_wait_s: float,
        pad_value: int,
        on_drop: Callable[[StreamId, DropReason], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._canvases = canvases
        self._max_wait_ns = round(max_wait_s * 1e9)
        self._pad_value = pad_value
        self._on_drop = on_drop
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._may_be_ready = threading.Condition(self._lock)
        self._borders: list[list[Letterbox | None]] = [[None] * len(canvas) for canvas in canvases]
        self._free = deque(range(1, len(canvases)))
        self._open: _OpenBatch | None = _OpenBatch(0)
        self._waiting: list[_Waiter] = []
        self._up: dict[StreamId, bool] = {}  # whether it is live
        self._closed_early: Batch | None = None
        self._is_idle = False  # the engine has asked for a batch, and none was ready
        self._is_closed = False

    def join(self, stream: StreamId, *, is_live: bool) -> None:
        """Count a stream among those that a batch waits for."""
        with self._lock:
            self._up[stream] = is_live

    def leave(self, stream: StreamId) -> None:
        """No longer wait for a stream."""
        with self._lock:
            if self._up.pop(stream, None) is not None:
                self._may_be_ready.notify()

    def reserve(self, stream: StreamId, *, is_live: bool) -> Ticket | None:
        """Wait for a row in the open batch, first come first served; None when the batcher was closed.

        A live stream that has a row in it already gets that row again, and its older frame is dropped; unless the
        engine is idle, which is then given the batch as it is. Who gets a row calls `fill` or `abandon` at once.
        """
        with self._lock:
            if self._is_closed:
                return None
            self._close_for_idle_engine(stream)
            if self._can_serve(stream, is_live=is_live):  # then nobody before us can: they would have been served
                return self._claim(stream, is_live=is_live)
            waiter = _Waiter(stream, is_live)
            self._waiting.append(waiter)
        waiter.is_served.wait()
        return waiter.ticket

    def fill(self, ticket: Ticket, frame: Frame) -> None:
        """Copy the frame to its row; this is the only copy of pixels between decoder and engine.

        Raises:
            ValueError: if the image has not the size that its letterbox says; the row is given up then.
        """
        try:
            self._copy(frame, ticket)
        except BaseException:
            self.abandon(ticket)
            raise
        with self._lock:
            batch = self._held()
            batch.rows[ticket.row] = Row(header=frame.header, letterbox=frame.letterbox)
            batch.writers -= 1
            due_ns = frame.header.read_at_ns + self._max_wait_ns
            batch.due_ns = due_ns if batch.due_ns is None else min(batch.due_ns, due_ns)
            self._may_be_ready.notify()

    def abandon(self, ticket: Ticket) -> None:
        """Give a reserved row up without filling it."""
        with self._lock:
            batch = self._held()
            batch.given_up.append(ticket.row)
            batch.live_row_of.pop(ticket.stream, None)
            batch.writers -= 1
            if not batch.count:
                batch.due_ns = None
            self._serve_waiters()
            self._may_be_ready.notify()

    def take(self, timeout_s: float) -> Batch | None:
        """Return the next closed batch, or None when none was ready in time. After `close`, what is left is ready."""
        deadline_ns = self._clock_ns() + round(timeout_s * 1e9)
        with self._lock:
            while True:
                if self._closed_early is not None:
                    early, self._closed_early = self._closed_early, None
                    return early
                now_ns = self._clock_ns()
                ready_at_ns = self._ready_at_ns()
                if ready_at_ns is not None and ready_at_ns <= now_ns:
                    self._is_idle = False
                    return self._close_batch(now_ns)
                self._is_idle = True
                if now_ns >= deadline_ns or self._is_drained():
                    return None
                wake_at_ns = deadline_ns if ready_at_ns is None else min(deadline_ns, ready_at_ns)
                self._may_be_ready.wait((wake_at_ns - now_ns) / 1e9)

    def give_back(self, index: int) -> None:
        """Canvas `index` may be filled again."""
        with self._lock:
            self._free.append(index)
            self._open_next()

    def close(self) -> None:
        """Take no more frames; batches already begun can still be taken."""
        with self._lock:
            self._is_closed = True
            for waiter in self._waiting:
                waiter.is_served.set()
            self._waiting.clear()
            self._may_be_ready.notify()

    @property
    def is_drained(self) -> bool:
        """Whether it is closed and nothing is left to take."""
        with self._lock:
            return self._is_drained()

    @property
    def has_due(self) -> bool:
        """Whether frames are here that nothing but the engine has to be waited for."""
        with self._lock:
            batch = self._open
            if self._closed_early is not None or self._waiting:
                return True
            if batch is None or not batch.count:
                return False
            return batch.due_ns is None or self._complete_or_due_ns(batch, batch.due_ns) <= self._clock_ns()

    def _open_next(self) -> None:
        if self._open is None and self._free:
            self._open = _OpenBatch(self._free.popleft())
            self._serve_waiters()

    def _serve_waiters(self) -> None:
        # In the order in which they came; one that cannot be served does not hold up those behind it.
        left = []
        for waiter in self._waiting:
            if self._can_serve(waiter.stream, is_live=waiter.is_live):
                waiter.ticket = self._claim(waiter.stream, is_live=waiter.is_live)
                waiter.is_served.set()
            else:
                left.append(waiter)
        self._waiting = left

    def _can_serve(self, stream: StreamId, *, is_live: bool) -> bool:
        if self._open is None:
            return False
        has_row = stream in self._open.live_row_of
        return is_live if has_row else self._open.count < len(self._canvases[self._open.canvas])

    def _claim(self, stream: StreamId, *, is_live: bool) -> Ticket:
        batch = self._held()
        row = batch.live_row_of.get(stream)
        if row is None:
            row = self._new_row(batch)
        elif batch.rows[row] is not None:
            batch.rows[row] = None
            self._on_drop(stream, DropReason.SUPERSEDED)
        if is_live:
            batch.live_row_of[stream] = row
        batch.writers += 1
        return Ticket(stream=stream, canvas=batch.canvas, row=row)

    def _copy(self, frame: Frame, ticket: Ticket) -> None:
        canvas, borders = self._canvases[ticket.canvas][ticket.row], self._borders[ticket.canvas]
        if borders[ticket.row] != frame.letterbox:
            borders[ticket.row] = None
            fill_border(canvas, frame.letterbox, pad_value=self._pad_value)
            borders[ticket.row] = frame.letterbox
        paste(frame.image, canvas, frame.letterbox)

    def _new_row(self, batch: _OpenBatch) -> int:
        if batch.given_up:
            return batch.given_up.pop()
        batch.rows.append(None)
        return len(batch.rows) - 1

    def _held(self) -> _OpenBatch:
        if self._open is None:
            raise RuntimeError("a row was filled that nobody had reserved")
        return self._open

    def _ready_at_ns(self) -> int | None:
        batch = self._open
        if batch is None or batch.writers or not batch.count or batch.due_ns is None:
            return None
        return self._complete_or_due_ns(batch, batch.due_ns)

    def _complete_or_due_ns(self, batch: _OpenBatch, due_ns: int) -> int:
        is_complete = self._is_closed or batch.count >= self._wanted(len(self._canvases[batch.canvas]))
        return due_ns - self._max_wait_ns if is_complete else due_ns

    def _close_for_idle_engine(self, stream: StreamId) -> None:
        # Only where the next batch can be opened at once: otherwise the stream would wait, and its frame grow old.
        batch = self._open
        if batch is None or batch.writers or not (self._is_idle and self._free) or stream not in batch.live_row_of:
            return
        self._is_idle = False
        self._closed_early = self._close_batch(self._clock_ns())
        self._may_be_ready.notify()

    def _wanted(self, capacity: int) -> int:
        return min(len(self._up), capacity) if all(self._up.values()) else capacity

    def _close_batch(self, now_ns: int) -> Batch:
        batch = self._held()
        closed = Batch(index=batch.canvas, rows=self._without_holes(batch), closed_at_ns=now_ns)
        self._open = None
        self._open_next()
        return closed

    def _without_holes(self, batch: _OpenBatch) -> tuple[Row, ...]:
        # An abandoned row leaves a hole, and an engine infers the first rows of a canvas: the last row moves into it.
        canvas, borders = self._canvases[batch.canvas], self._borders[batch.canvas]
        while None in batch.rows:
            hole, last = batch.rows.index(None), len(batch.rows) - 1
            canvas[hole], borders[hole] = canvas[last], borders[last]
            batch.rows[hole] = batch.rows[last]
            batch.rows.pop()
        return tuple(row for row in batch.rows if row is not None)

    def _is_drained(self) -> bool:
        # Called with the lock held.
        is_empty = self._open is None or not self._open.count
        return self._is_closed and is_empty and self._closed_early is None
