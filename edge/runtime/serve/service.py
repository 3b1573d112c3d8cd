"""The running pipeline: starts its threads, watches them, and ends them so that every frame has a fate."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge.config.schema import OverloadConfig
from edge.deadline import Deadline
from edge.errors import EdgeError
from edge.media.camera import StreamStatus
from edge.media.shedding import Orders
from edge.protocols import FrameSource, Publisher
from edge.reading import read_file
from edge.runtime.look.server import StatusServer
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters, report_stream
from edge.runtime.pipeline.loop import Inference, InferenceLoop
from edge.runtime.pipeline.report import RunReport, RunTimes
from edge.runtime.serve.following import Stages
from edge.runtime.serve.hanging import HANGING_S, hanging_threads
from edge.runtime.serve.last_look import LastLook
from edge.runtime.serve.last_switch import LastSwitchPublisher
from edge.runtime.serve.reload import Changes
from edge.runtime.serve.running_streams import RunningStreams
from edge.runtime.serve.stream_states import StreamStates
from edge.types import DropReason, Precision, StreamId

__all__ = ["PipelineParts", "ReliefParts", "Service"]

_log = logging.getLogger(__name__)
_TICK_S = 0.1
_PULLER_STOP_S = 10.0
_DRAIN_S = 30.0
_FLUSH_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliefParts:
    """What is done where the machine cannot keep up: the orders that sources obey, and what the pipeline file says.

    `stated_fps` is the `max_fps` of each live stream, None where it states none.
    """

    orders: Orders = field(default_factory=Orders)
    config: OverloadConfig = field(default_factory=OverloadConfig)
    stated_fps: Mapping[StreamId, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """Everything that a pipeline consists of, made and not yet started.

    `last_switch` and `last_look` are there only where a release runs, and `reload` only where none does: a release does
    not change.
    """

    name: str
    device: str
    precision: Precision
    sources: Sequence[FrameSource]
    inference: Inference
    batcher: Batcher
    counters: FrameCounters
    publisher: Publisher
    states: StreamStates
    relief: ReliefParts = field(default_factory=ReliefParts)
    stages: Stages | None = None
    last_switch: LastSwitchPublisher | None = None
    last_look: LastLook | None = None
    reload: Callable[[], Changes] | None = None
    status: StatusServer | None = None


class Service:
    """Runs a pipeline once.

    Args:
        parts: of the pipeline.
        on_stop: called when it begins to end.
        hanging_s: a thread that is in one call for longer is said to hang.
    """

    def __init__(
        self, parts: PipelineParts, *, on_stop: Callable[[], None] = lambda: None, hanging_s: float = HANGING_S
    ) -> None:
        self._parts = parts
        self._hanging_s = hanging_s
        self._on_stop = on_stop
        self._streams = RunningStreams(parts.sources, parts.batcher, parts.counters, on_end=parts.states.remove)
        self._loop = InferenceLoop(parts.inference, parts.batcher, parts.counters)
        self._started_at_ns = 0
        self._cpu_at_start_s = 0.0
        self._times_at_end = RunTimes(elapsed_s=0, cpu_s=0, peak_memory_bytes=0)
        self._statuses_at_end: Mapping[StreamId, StreamStatus] = {}
        self._failed: set[StreamId] = set()

    def run(
        self,
        stop: threading.Event,
        *,
        duration_s: float | None = None,
        on_tick: Callable[[RunReport], None] | None = None,
        tick_s: float = _TICK_S,
        reload: threading.Event | None = None,
        on_end: Callable[[RunReport], None] = lambda report: None,
    ) -> RunReport:
        """Run until `stop` is set, `duration_s` is over or every stream has ended; return the final account.

        When `reload` is set, streams are taken over anew from the pipeline file.
        `on_tick` is called about every `tick_s` seconds with an account so far, by the calling thread; `on_end` with
        the final one, also where the engine has failed.

        Raises:
            EngineError: if the engine failed; everything is closed then as well.
        """
        self._started_at_ns, self._cpu_at_start_s = time.monotonic_ns(), time.process_time()
        with contextlib.ExitStack() as stack:
            stack.callback(self._parts.inference.engine.close)
            stack.callback(self._close_publisher)
            stack.callback(self._drain)
            self._loop.start()
            self._streams.start()
            self._watch(stop, duration_s, _Ticker(on_tick, tick_s), reload or threading.Event())
        report = self._report(self._times_at_end, is_final=True)
        on_end(report)
        if self._loop.error is not None:
            raise self._loop.error
        return report

    def _watch(self, stop: threading.Event, duration_s: float | None, ticker: _Ticker, reload: threading.Event) -> None:
        deadline_ns = None if duration_s is None else self._started_at_ns + round(duration_s * 1e9)
        while self._loop.is_alive and not stop.wait(min(_TICK_S, ticker.every_s)):
            if reload.is_set():
                reload.clear()
                self._reload()
            self._streams.settle()
            self._announce_failures()
            self._announce_ends()
            ticker.tick(lambda: self._report(self._times(), is_final=False))
            if not self._streams.are_alive:
                _log.info("all streams have ended")
                return
            if self._parts.publisher.is_broken:
                _log.error("nothing that is found can be delivered any more: stopping")
                return
            if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                return

    def _drain(self) -> None:
        self._on_stop()
        self._announce_failures()
        self._statuses_at_end = self._parts.states.statuses()
        # Order matters: first nothing new comes, then what is in the batches is inferred, then it is published.
        pullers = self._streams.stop()
        if not self._loop.is_alive:  # nobody makes room any more: wake those who wait for a row
            self._parts.batcher.close()
        deadline = Deadline.after(_PULLER_STOP_S)
        late = [puller for puller in pullers if not puller.join(deadline.left_s)]
        for puller in late:
            _log.error("stream does not stop stream=%s", puller.source.stream)
        self._parts.batcher.close()
        if not self._loop.drain(_DRAIN_S):
            _log.error("inference does not end")
        while (batch := self._parts.batcher.take(0)) is not None:  # the engine has failed: nobody will infer these
            for row in batch.rows:
                self._parts.counters.dropped(row.header.stream, DropReason.STOPPED)
            self._parts.batcher.give_back(batch.index)
        for stream in self._parts.states.ending:
            self._parts.states.finish(stream)
        if self._parts.stages is not None:
            self._parts.stages.stop()
        self._times_at_end = self._times()

    def _close_publisher(self) -> None:
        self._parts.publisher.flush(_FLUSH_S)
        self._parts.publisher.close()

    def _reload(self) -> None:
        if self._parts.reload is None:
            _log.info("nothing to reload reason=%s", "a release does not change")
            return
        try:
            changes = self._parts.reload()
        except EdgeError as error:
            _log.error("reload refused, all goes on as before reason=%s", error)
            return
        self._failed -= {source.stream for source in changes.sources}
        self._streams.change(changes.sources, removed=changes.removed)

    def _announce_failures(self) -> None:
        for puller in self._streams.pullers:
            stream = puller.source.stream
            if puller.failure is not None and stream not in self._failed:
                self._failed.add(stream)
                self._parts.states.fail(stream, puller.failure)

    def _announce_ends(self) -> None:
        """Tell that streams have ended of which every frame has had its fate."""
        if not (ending := self._parts.states.ending):
            return
        counts = self._streams.counts()
        for stream in ending:
            if stream in counts and not report_stream(stream, counts[stream], self._parts.counters).unaccounted:
                self._parts.states.finish(stream)

    def _hanging(self) -> tuple[str, ...]:
        return hanging_threads(
            self._streams.all_pullers, self._loop, now_ns=time.monotonic_ns(), limit_s=self._hanging_s
        )

    def _times(self) -> RunTimes:
        return RunTimes(
            elapsed_s=(time.monotonic_ns() - self._started_at_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_at_start_s,
            peak_memory_bytes=_peak_memory_bytes(),
        )

    def _report(self, times: RunTimes, *, is_final: bool) -> RunReport:
        parts = self._parts
        counts = self._streams.counts()
        streams = [report_stream(stream, one, parts.counters) for stream, one in counts.items()]
        return RunReport(
            name=parts.name,
            engine=parts.inference.engine.name,
            precision=parts.precision,
            times=times,
            streams=tuple(streams),
            statuses=self._statuses_at_end if is_final else parts.states.statuses(),
            stages_ms=parts.counters.stage_json(),
            batch_sizes=parts.counters.batch_sizes(),
            published=parts.publisher.by_output(),
            recent=parts.counters.recent(),
            turns=self._loop.turns,
            has_work=self._loop.has_work,
            engine_busy_s=self._loop.busy_ns / 1e9,
            shedding=parts.relief.orders.in_force(),
            hanging=() if is_final else self._hanging(),
            is_final=is_final,
        )


class _Ticker:
    """Calls somebody at most every `every_s` seconds; an account costs too much to be made for nobody."""

    def __init__(self, on_tick: Callable[[RunReport], None] | None, every_s: float) -> None:
        self.every_s = every_s
        self._on_tick = on_tick
        self._due_s = 0.0

    def tick(self, report: Callable[[], RunReport]) -> None:
        if self._on_tick is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self.every_s
            self._on_tick(report())


def _peak_memory_bytes() -> int:
    # Not ru_maxrss: that starts at what the parent process had when it started this one.
    status = read_file(Path("/proc/self/status")).decode("ascii", "replace")
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * 1024
