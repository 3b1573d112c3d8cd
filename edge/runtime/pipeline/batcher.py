"""Collects frames of all streams into batches, in the engine's own canvases.

A live stream has at most one row in a batch, a file as many as it can fill. A batch is closed when no row is left, when
every stream that is up is live and has its row, when its deadline has come, or when the engine is idle and a stream
that is in it comes again: no stream is slowed down to the pace of another. While the engine is at work, the open batch
takes newer frames of live streams in place of older ones; that does not move its deadline.

Where there are more frames than rows, those streams come first that were given least (`edge.runtime.pipeline.shares`),
and one that has missed its turn may take the row of one that was given more. Files wait and lose nothing.

The holder of a row only copies pixels meanwhile: no source is asked for anything, so that none can hold up the others.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edge.runtime.pipeline.rows import Batch, Canvases, OpenBatch, Row, Ticket, Turn
from edge.runtime.pipeline.shares import FairShares, Terms
from edge.types import DropReason, Frame, StreamId

__all__ = ["Batcher"]


class Batcher:
    """Thread-safe; pullers call `reserve` and `fill`, one inference thread calls `take` and `give_back`.

    Room goes to the waiter whose turn it is, and only that one is woken: with many streams, waking all of
    them for every row would cost more than decoding.

    Args:
        max_wait_s: how long the first frame of a batch waits for others.
        on_drop: called for each frame that is dropped here; must return at once.
        terms: of streams that have other ones than most.
    """

    def __init__(
        self,
        canvases: Sequence[NDArray[np.uint8]],
        *,
        max_wait_s: float,
        pad_value: int,
        on_drop: Callable[[StreamId, DropReason], None],
        terms: Mapping[StreamId, Terms] = MappingProxyType({}),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._canvases = Canvases(canvases, pad_value=pad_value)
        self._max_wait_ns = round(max_wait_s * 1e9)
        self._on_drop = on_drop
        self._max_age_ns = {stream: one.max_age_ns for stream, one in terms.items() if one.max_age_ns is not None}
        self._shares = FairShares(terms)
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._may_be_ready = threading.Condition(self._lock)
        self._free = deque(range(1, len(canvases)))
        self._open: OpenBatch | None = OpenBatch(0)
        self._waiting: list[Turn] = []
        self._up: dict[StreamId, bool] = {}  # whether it is live
        self._closed_early: Batch | None = None
        self._is_idle = False  # the engine has asked for a batch, and none was ready
        self._wakes_at_ns = math.inf  # when the waiter for a batch wakes by itself
        self._is_closed = False

    def join(self, stream: StreamId, *, is_live: bool) -> None:
        """Count a stream among those that a batch waits for."""
        with self._lock:
            self._up[stream] = is_live

    def set_terms(self, stream: StreamId, terms: Terms) -> None:
        with self._lock:
            self._shares.set_terms(stream, terms)
            self._max_age_ns.pop(stream, None)
            if terms.max_age_ns is not None:
                self._max_age_ns[stream] = terms.max_age_ns

    @property
    def terms(self) -> Mapping[StreamId, Terms]:
        return self._shares.terms

    @property
    def live(self) -> frozenset[StreamId]:
        with self._lock:
            return frozenset(stream for stream, is_live in self._up.items() if is_live)

    def leave(self, stream: StreamId) -> None:
        with self._lock:
            if self._up.pop(stream, None) is not None:
                self._wake()

    def reserve(self, stream: StreamId, *, is_live: bool) -> Ticket | None:
        """Wait for a row in the open batch; None when the batcher was closed.

        Of those that wait, the stream that was given least comes first. A live stream that has a row in it already gets
        that row again, and its older frame is dropped; unless the engine is idle, which is then given the batch as it
        is. Who gets a row calls `fill` or `abandon` at once.
        """
        return self.ask(stream, is_live=is_live).wait()

    def ask(self, stream: StreamId, *, is_live: bool) -> Turn:
        """Ask for a row as `reserve` does, and do not wait."""
        turn = Turn(stream, is_live)
        with self._lock:
            if self._is_closed:
                turn.end(None)
                return turn
            self._let_stale_go()
            self._close_for_idle_engine(stream)
            if not self._serve(turn):  # no other waiter could be served in its place: they were asked before
                turn.queue()
                self._waiting.append(turn)
        return turn

    def fill(self, ticket: Ticket, frame: Frame) -> None:
        """Copy the frame to its row; this is the only copy of pixels between decoder and engine.
        Raises `ValueError` if the image has not the size that its letterbox says; the row is given up then.
        """
        try:
            self._canvases.copy(frame, ticket)
        except BaseException:
            self.abandon(ticket)
            raise
        with self._lock:
            row = Row(header=frame.header, letterbox=frame.letterbox)
            self._held().fill(ticket.row, row, due_ns=frame.header.read_at_ns + self._max_wait_ns)
            self._serve_waiters()  # one of them may have been given less than this stream
            self._wake()

    def abandon(self, ticket: Ticket) -> None:
        with self._lock:
            batch = self._held()
            batch.writers -= 1
            batch.give_up(ticket.row, ticket.stream)
            self._serve_waiters()
            self._wake()

    def take(self, timeout_s: float) -> Batch | None:
        """Return None where no batch was ready in time. After `close`, what is left is ready."""
        deadline_ns = self._clock_ns() + round(timeout_s * 1e9)
        with self._lock:
            while True:
                if self._closed_early is not None:
                    early, self._closed_early = self._closed_early, None
                    return early
                self._let_stale_go()
                now_ns = self._clock_ns()
                ready_at_ns = self._ready_at_ns()
                if ready_at_ns is not None and ready_at_ns <= now_ns:
                    self._is_idle = False
                    return self._close_batch(now_ns)
                self._is_idle = True
                if now_ns >= deadline_ns or self._is_drained():
                    return None
                self._wakes_at_ns = deadline_ns if ready_at_ns is None else min(deadline_ns, ready_at_ns)
                self._may_be_ready.wait((self._wakes_at_ns - now_ns) / 1e9)

    def give_back(self, index: int) -> None:
        """Canvas `index` may be filled again."""
        with self._lock:
            self._free.append(index)
            self._open_next()

    def close(self) -> None:
        """Take no more frames; batches already begun can still be taken."""
        with self._lock:
            self._is_closed = True
            for turn in self._waiting:
                turn.end(None)
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

    def _wake(self) -> None:
        """Wake the waiter for a batch, if that can be taken before it wakes by itself."""
        ready_at_ns = self._ready_at_ns()
        if ready_at_ns is not None and ready_at_ns < self._wakes_at_ns:
            self._may_be_ready.notify()

    def _open_next(self) -> None:
        if self._open is None and self._free:
            self._open = OpenBatch(self._free.popleft())
            self._serve_waiters()

    def _serve_waiters(self) -> None:
        # One that cannot be served does not hold up those behind it.
        self._waiting.sort(key=self._standing)
        self._waiting = [turn for turn in self._waiting if not self._serve(turn)]

    def _serve(self, turn: Turn) -> bool:
        batch = self._open
        if batch is None or self._is_awaited(batch):
            return False
        row = batch.live_row_of.get(turn.stream)
        if row is not None:
            if self._is_idle and self._free:  # it could not be closed yet, because others copy: as soon as they have
                batch.due_ns = self._clock_ns()
                return False
            batch.rows[row] = None
            self._shares.miss(turn.stream)
            self._on_drop(turn.stream, DropReason.SUPERSEDED)
        elif batch.count < self._canvases.rows or self._take_from_richest(batch, turn):
            row = batch.new_row()
        else:
            return False
        if turn.is_live:
            batch.live_row_of[turn.stream] = row
        batch.writers += 1
        turn.end(Ticket(stream=turn.stream, canvas=batch.canvas, row=row))
        return True

    def _take_from_richest(self, batch: OpenBatch, turn: Turn) -> bool:
        """Make room for a live stream that has missed its turn, and was given less than one that is in the batch."""
        filled = [stream for stream, row in batch.live_row_of.items() if batch.rows[row] is not None]
        richest = max(filled, key=self._shares.standing, default=None)
        if richest is None or not turn.is_live or not self._shares.may_take(turn.stream, richest):
            return False
        self._let_go(batch, richest, DropReason.YIELDED)
        return True

    def _standing(self, turn: Turn) -> float:
        has = 0 if self._open is None or turn.is_live else self._open.rows_of(turn.stream)
        return self._shares.standing(turn.stream, pending=has)

    def _let_stale_go(self) -> None:
        batch = self._open
        if not self._max_age_ns or batch is None:
            return
        now_ns = self._clock_ns()
        stale = [stream for stream, row in batch.live_row_of.items() if self._is_stale(batch.rows[row], now_ns)]
        for stream in stale:
            self._let_go(batch, stream, DropReason.STALE)
        if stale:
            self._serve_waiters()

    def _is_stale(self, row: Row | None, now_ns: int) -> bool:
        if row is None or row.header.stream not in self._max_age_ns:
            return False
        age_ns = now_ns - row.header.read_at_ns + row.header.decode_ns
        return age_ns > self._max_age_ns[row.header.stream]

    def _let_go(self, batch: OpenBatch, stream: StreamId, reason: DropReason) -> None:
        batch.give_up(batch.live_row_of[stream], stream)
        self._on_drop(stream, reason)

    def _held(self) -> OpenBatch:
        if self._open is None:
            raise RuntimeError("a row was filled that was not reserved")
        return self._open

    def _ready_at_ns(self) -> int | None:
        batch = self._open
        if batch is None or batch.writers or not batch.count or batch.due_ns is None:
            return None
        return self._complete_or_due_ns(batch, batch.due_ns)

    def _is_awaited(self, batch: OpenBatch) -> bool:
        # Its time has come and the engine waits for those who copy: one more after the other would make that endless.
        if not (self._is_idle and self._free and batch.count) or batch.due_ns is None:
            return False
        return self._complete_or_due_ns(batch, batch.due_ns) <= self._clock_ns()

    def _complete_or_due_ns(self, batch: OpenBatch, due_ns: int) -> int:
        is_complete = self._is_closed or batch.count >= self._wanted(self._canvases.rows)
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
        closed = Batch(index=batch.canvas, rows=self._canvases.settle(batch), closed_at_ns=now_ns)
        self._shares.give(row.header.stream for row in closed.rows)
        self._open = None
        self._open_next()
        return closed

    def _is_drained(self) -> bool:
        # Called with the lock held.
        is_empty = self._open is None or not self._open.count
        return self._is_closed and is_empty and self._closed_early is None
