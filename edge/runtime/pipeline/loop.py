"""The threads of a pipeline: one per stream reads frames into the open batch, one infers.

While one batch is inferred, the next is filled and the one before is read out, as far as its streams report it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge.errors import EdgeError, EndOfStream
from edge.protocols import Engine, FrameSource
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.rows import Batch, Row
from edge.track.geometry import Zones, anchors
from edge.types import Detections, DropReason, EngineOutput, FrameResult, ImageSize, Polygon, StageTimes, StreamId
from edge.vision.heads import Detector, Head, has_scores

__all__ = ["IgnoredArea", "Inference", "InferenceLoop", "Onlooker", "Puller", "StreamFilter"]

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


_log = logging.getLogger(__name__)
_TAKE_TIMEOUT_S = 0.1
_SILENT_FRAMES = 2000
_LOOKED_AT = 16  # one batch of so many


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredArea:
    """A polygon, and the class ids that it is about; None: all."""

    polygon: Polygon
    class_ids: frozenset[int] | None = None


class StreamFilter:
    """Args:
    class_ids: int32 (N,), what the stream reports; None: every class.
    ignored: where detections are left out.
    classes: how many the model has.
    """

    def __init__(
        self, class_ids: NDArray[np.int32] | None = None, ignored: Sequence[IgnoredArea] = (), *, classes: int = 0
    ) -> None:
        self.class_ids = class_ids
        self._areas = Zones([[(x, y) for x, y in area.polygon] for area in ignored]) if ignored else None
        about = [[area.class_ids is None or k in area.class_ids for area in ignored] for k in range(classes)]
        self._is_about = np.array(about, np.bool_)  # (classes, areas)

    def keep(self, found: Detections, size: ImageSize) -> Detections:
        """Return the detections of a frame of this size whose centre lies in no ignored area, in order."""
        if self._areas is None or not len(found):
            return found
        centres = anchors(found.xyxy, "centre", width=size.width, height=size.height)
        is_kept = ~(self._areas.inside(centres) & self._is_about[found.class_id]).any(axis=1)
        return Detections(xyxy=found.xyxy[is_kept], score=found.score[is_kept], class_id=found.class_id[is_kept])


_ALL = StreamFilter()


class Onlooker(Protocol):
    """Somebody who wants to see pixels of frames now and then; called by the inference thread, and must be quick."""

    def wants(self, batch: Batch) -> Sequence[int]:
        """Return the rows of the batch that it wants to see; only these are copied."""

    def see(self, row: Row, pixels: NDArray[np.uint8], result: FrameResult) -> None:
        """Take a frame: `pixels` is its canvas, uint8 (H, W, 3) RGB, and the onlooker's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """Parts that turn a batch into results; `filters` may be changed meanwhile."""

    engine: Engine
    detector: Detector
    filters: Mapping[StreamId, StreamFilter]
    on_results: Callable[[list[FrameResult]], None]
    onlookers: Sequence[Onlooker] = ()


class _Silence:
    """Tells, once, of a model whose scores are all exactly 0: no scene is like that, only broken arithmetic is."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._batches = self._frames = 0
        self._is_over = False

    def hear(self, output: EngineOutput, frames: int) -> None:
        """Look at a batch that was inferred; the first score that is none ends it."""
        if self._is_over:
            return
        is_looked_at = self._batches % _LOOKED_AT == 0
        self._batches, self._frames = self._batches + 1, self._frames + frames
        if is_looked_at and has_scores(output, self._head):
            self._is_over = True
        elif is_looked_at and self._frames >= _SILENT_FRAMES:
            self._is_over = True
            _log.warning("no detection yet, every score is exactly 0 frames=%d", self._frames)


class InferenceLoop:
    """Runs until the batcher is closed and empty, or until the engine fails; `error` then says why."""

    def __init__(self, inference: Inference, batcher: Batcher, counters: FrameCounters) -> None:
        self._engine = inference.engine
        self._inference = inference
        self._batcher = batcher
        self._counters = counters
        self._draining = threading.Event()
        self._thread = threading.Thread(target=self._run, name="infer", daemon=True)
        self.name = self._thread.name
        self._silence = _Silence(inference.detector.head)
        self._begun: list[Batch] = []
        self.error: BaseException | None = None
        self.turns = 0  # grows as long as the loop is not stuck, also while there is nothing to infer
        self.turned_at_ns = 0  # monotonic
        self.busy_ns = 0  # in which the engine had a batch
        self._free_at_ns = 0

    @property
    def has_work(self) -> bool:
        """Whether frames are being inferred, or could be at once."""
        return bool(self._begun) or self._batcher.has_due

    def start(self) -> None:
        self.turned_at_ns = time.monotonic_ns()
        self._thread.start()

    def drain(self, timeout_s: float) -> bool:
        """Infer what the closed batcher still holds, then end; return whether that came to an end in time."""
        self._draining.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        running: tuple[Batch, int] | None = None
        try:
            while running is not None or not self._draining.is_set() or not self._batcher.is_drained:
                running = self._turn(running)
                self.turns += 1
                self.turned_at_ns = time.monotonic_ns()
        except BaseException as error:  # the border of this thread: recorded here, raised again by the service
            self.error = error
            for row in (row for batch in self._begun for row in batch.rows):
                self._counters.dropped(row.header.stream, DropReason.FAILED)

    def _turn(self, running: tuple[Batch, int] | None) -> tuple[Batch, int] | None:
        if running is None:
            return self._begin(_TAKE_TIMEOUT_S)
        batch, started_at_ns = running
        output = self._engine.wait(batch.index)
        inferred_at_ns = time.monotonic_ns()
        self.busy_ns += inferred_at_ns - max(started_at_ns, self._free_at_ns)
        self._free_at_ns = inferred_at_ns
        seen = self._look_at(batch)
        self._batcher.give_back(batch.index)
        # The next batch runs while this one is read out; its outputs are its own, so they do not meet.
        following = self._begin(0)
        results = self._read_out(batch, output, infer_ns=inferred_at_ns - started_at_ns, since_ns=inferred_at_ns)
        self._inference.on_results(results)
        self._counters.inferred(results)  # behind it: a stream whose account balances has nothing more to tell
        self._begun.remove(batch)
        for onlooker, row, pixels in seen:
            onlooker.see(batch.rows[row], pixels, results[row])
        return following

    def _look_at(self, batch: Batch) -> list[tuple[Onlooker, int, NDArray[np.uint8]]]:
        canvas = self._engine.canvases[batch.index]
        return [(one, row, canvas[row].copy()) for one in self._inference.onlookers for row in one.wants(batch)]

    def _begin(self, timeout_s: float) -> tuple[Batch, int] | None:
        batch = self._batcher.take(timeout_s)
        if batch is None:
            return None
        self._begun.append(batch)
        self._engine.start(batch.index, len(batch.rows))
        return batch, time.monotonic_ns()

    def _read_out(self, batch: Batch, output: EngineOutput, *, infer_ns: int, since_ns: int) -> list[FrameResult]:
        filters = [self._inference.filters.get(row.header.stream, _ALL) for row in batch.rows]
        letterboxes = [row.letterbox for row in batch.rows]
        wanted = [one.class_ids for one in filters]
        found = self._inference.detector.detect(output, letterboxes, class_ids=wanted)
        found = [one.keep(some, where.source) for one, some, where in zip(filters, found, letterboxes, strict=True)]
        self._silence.hear(output, len(batch.rows))
        post_ns = time.monotonic_ns() - since_ns
        return [
            FrameResult(
                header=row.header,
                detections=detections,
                times=StageTimes(
                    decode_ns=row.header.decode_ns,
                    batch_wait_ns=batch.closed_at_ns - row.header.read_at_ns,
                    infer_ns=infer_ns,
                    post_ns=post_ns,
                ),
            )
            for row, detections in zip(batch.rows, found, strict=True)
        ]
