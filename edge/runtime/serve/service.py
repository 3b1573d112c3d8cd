"""The running pipeline: starts its threads, watches them, and ends them so that every frame has a fate.

Names the threads that have not come back from a call for too long: the watchdog is not fed while there is one.

The streams that are read: which puller reads what, which one ends, and which one begins when that has ended.
"""

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
from edge.media.rate import Caps
from edge.media.threads import stuck_streams
from edge.protocols import FrameSource, Publisher
from edge.reading import read_file
from edge.runtime.look.server import StatusServer
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters, RunReport, RunTimes, StreamCounts, StreamReport, report_stream
from edge.runtime.pipeline.loop import Inference, InferenceLoop, Puller
from edge.runtime.serve.following import Stages
from edge.runtime.serve.streams import StreamStates
from edge.types import DropReason, Precision, SourceCounts, StreamId

__all__ = ["Changes", "PipelineParts", "RunningStreams", "Service"]

_log = logging.getLogger(__name__)
_TICK_S = 0.1
_PULLER_STOP_S = 10.0
_DRAIN_S = 30.0
_FLUSH_S = 5.0
# A camera's teardown may take 5 s, the first look at a plugin several; the unit's watchdog bites at 30 s.
_HANGING_S = 20.0
_AT_ONCE = 2  # are begun at one look, ten times a second: a start takes up to 40 ms of a core from those that run


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a reload: the service stops reading `removed`, and reads `sources`, new or changed ones."""

    removed: tuple[StreamId, ...]
    sources: tuple[FrameSource, ...]


class RunningStreams:
    """Used by the thread of the service. No call waits: a source may take seconds to end.
    `on_end`: called when a stream that was removed is read no more.
    """

    def __init__(
        self,
        sources: Sequence[FrameSource],
        batcher: Batcher,
        counters: FrameCounters,
        *,
        on_end: Callable[[StreamId], None],
    ) -> None:
        self._batcher = batcher
        self._counters = counters
        self._on_end = on_end
        self.pullers = [self._puller(source) for source in sources]
        self._ending: list[Puller] = []
        self._next: dict[StreamId, FrameSource] = {}
        self._past: dict[StreamId, SourceCounts] = {}  # of the sources that a stream had before

    @property
    def all_pullers(self) -> Sequence[Puller]:
        """Those that read, and those that are about to end."""
        return [*self.pullers, *self._ending]

    @property
    def are_alive(self) -> bool:
        return bool(self._next) or any(puller.is_alive for puller in self.all_pullers)

    def start(self) -> None:
        for puller in self.pullers:
            puller.start()

    def change(self, sources: Sequence[FrameSource], *, removed: Sequence[StreamId]) -> None:
        """Read `sources` from now on, new ones or in place of others, and `removed` no more."""
        for stream in removed:
            self._next.pop(stream, None)
        self._next.update({source.stream: source for source in sources})
        touched = {*removed, *(source.stream for source in sources)}
        ending = [puller for puller in self.pullers if puller.source.stream in touched]
        for puller in ending:
            puller.stop()
            self.pullers.remove(puller)
        self._ending += ending
        _log.info("streams reloaded begin=%s end=%s", ",".join(self._next) or "none", ",".join(removed) or "none")

    def settle(self) -> None:
        """Record what has ended, and begin some of what waits for that."""
        for puller in [one for one in self._ending if not one.is_alive]:
            self._ending.remove(puller)
            self._close_account(puller.source)
        busy = {puller.source.stream for puller in self._ending}
        for stream in [one for one in self._next if one not in busy][:_AT_ONCE]:
            puller = self._puller(self._next.pop(stream))
            self.pullers.append(puller)
            puller.start()

    def stop(self) -> Sequence[Puller]:
        """Return those that were asked to end; no other is begun."""
        self._next.clear()
        for puller in self.all_pullers:
            puller.stop()
        return self.all_pullers

    def counts(self) -> Mapping[StreamId, SourceCounts]:
        """Return what the sources of each stream have done, those that it had before included."""
        total: dict[StreamId, SourceCounts] = {stream: SourceCounts() for stream in self._next}
        for source in (puller.source for puller in self.all_pullers):
            total[source.stream] = total.get(source.stream, SourceCounts()) + source.counts()
        return {stream: self._past.get(stream, SourceCounts()) + one for stream, one in total.items()}

    def _puller(self, source: FrameSource) -> Puller:
        return Puller(source, self._batcher, self._counters)

    def _close_account(self, source: FrameSource) -> None:
        stream = source.stream
        self._past[stream] = self._past.get(stream, SourceCounts()) + source.counts()
        if stream not in self._next:
            one = report_stream(stream, self._past[stream], self._counters.of_stream(stream))
            dropped = {reason.value: count for reason, count in one.dropped.items()}
            _log.info(
                "stream removed stream=%s decoded=%d inferred=%d dropped=%s", stream, one.decoded, one.inferred, dropped
            )
            self._on_end(stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """Everything that a pipeline consists of, made and not yet started.

    `reload` is there only where no release runs: a release does not change. Sources obey `orders`; `stated_fps` is the
    `max_fps` of each live stream, None where it states none. `build_runs`: whether a build runs whose timings the
    engine would spoil. `tellers` publish what is news, about once a second.
    """

    name: str
    precision: Precision
    sources: Sequence[FrameSource]
    inference: Inference
    batcher: Batcher
    counters: FrameCounters
    publisher: Publisher
    states: StreamStates
    orders: Caps = field(default_factory=Caps)
    overload: OverloadConfig = field(default_factory=OverloadConfig)
    stated_fps: Mapping[StreamId, float | None] = field(default_factory=dict)
    build_runs: Callable[[], bool] = lambda: False
    stages: Stages | None = None
    tellers: Sequence[Callable[[], None]] = ()
    reload: Callable[[], Changes] | None = None
    status: StatusServer | None = None


class Service:
    """Runs a pipeline once. `hanging_s`: a thread that is in one call for longer is said to hang."""

    def __init__(
        self, parts: PipelineParts, *, on_stop: Callable[[], None] = lambda: None, hanging_s: float = _HANGING_S
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

        Raises `EngineError` if the engine failed; everything is closed then as well.
        """
        self._started_at_ns, self._cpu_at_start_s = time.monotonic_ns(), time.process_time()
        with contextlib.ExitStack() as stack:
            stack.callback(self._parts.inference.engine.close)
            stack.callback(self._parts.publisher.close)
            stack.callback(self._parts.publisher.flush, _FLUSH_S)
            stack.callback(self._drain)
            self._loop.start()
            self._streams.start()
            self._watch(stop, duration_s, on_tick, tick_s, reload or threading.Event())
        report = self._report(self._times_at_end, is_final=True)
        on_end(report)
        if self._loop.error is not None:
            raise self._loop.error
        return report

    def _watch(
        self,
        stop: threading.Event,
        duration_s: float | None,
        on_tick: Callable[[RunReport], None] | None,
        tick_s: float,
        reload: threading.Event,
    ) -> None:
        due_s = 0.0  # of the next tick: an account is costly to make
        deadline_ns = None if duration_s is None else self._started_at_ns + round(duration_s * 1e9)
        while self._loop.is_alive and not stop.wait(min(_TICK_S, tick_s)):
            if reload.is_set():
                reload.clear()
                self._reload()
            self._streams.settle()
            self._announce_failures()
            self._announce_ends()
            if on_tick is not None and time.monotonic() >= due_s:
                due_s = time.monotonic() + tick_s
                on_tick(self._report(self._times(), is_final=False))
            if not self._streams.are_alive:
                _log.info("all streams have ended")
                return
            if self._parts.publisher.is_broken:
                _log.info("no output works, stopping")
                return
            if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                return

    def _drain(self) -> None:
        self._on_stop()
        self._announce_failures()
        self._statuses_at_end = self._parts.states.statuses()
        # Order matters: first nothing new comes, then what is in the batches is inferred, then it is published.
        pullers = self._streams.stop()
        if not self._loop.is_alive:  # no more room is made: wake the threads that wait for a row
            self._parts.batcher.close()
        deadline = Deadline.after(_PULLER_STOP_S)
        late = [puller for puller in pullers if not puller.join(deadline.left_s)]
        for puller in late:
            _log.error("stream does not stop stream=%s", puller.source.stream)
        self._parts.batcher.close()
        if not self._loop.drain(_DRAIN_S):
            _log.error("inference does not end")
        while (batch := self._parts.batcher.take(0)) is not None:  # the engine has failed: these are not inferred
            for row in batch.rows:
                self._parts.counters.dropped(row.header.stream, DropReason.STOPPED)
            self._parts.batcher.give_back(batch.index)
        for stream in self._parts.states.ending:
            self._parts.states.finish(stream)
        if self._parts.stages is not None:
            self._parts.stages.stop()
        self._times_at_end = self._times()

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
        for one in self._stream_reports():
            if one.stream in ending and not one.unaccounted:
                self._parts.states.finish(one.stream)

    def _hanging(self) -> tuple[str, ...]:
        """Return the names of threads that hang: in a source for too long, in the engine, in a teardown.

        A camera whose teardown hangs is left out in the end, and costs the others nothing; a restart would take them
        all down. It helps only where all are such.
        """
        pullers, now_ns = self._streams.all_pullers, time.monotonic_ns()
        since = {one.name: one.in_source_since_ns for one in pullers}
        since[self._loop.name] = self._loop.turned_at_ns if self._loop.is_alive else None
        late = [name for name, at in since.items() if at is not None and now_ns - at > self._hanging_s * 1e9]
        stuck = set(stuck_streams())
        are_all_stuck = bool(pullers) and all(one.source.stream in stuck for one in pullers)
        return (*late, *(f"teardown {stream}" for stream in sorted(stuck) if are_all_stuck))

    def _times(self) -> RunTimes:
        return RunTimes(
            elapsed_s=(time.monotonic_ns() - self._started_at_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_at_start_s,
            peak_memory_bytes=_peak_memory_bytes(),
        )

    def _report(self, times: RunTimes, *, is_final: bool) -> RunReport:
        parts = self._parts
        return RunReport(
            name=parts.name,
            engine=parts.inference.engine.name,
            precision=parts.precision,
            times=times,
            streams=self._stream_reports(),
            statuses=self._statuses_at_end if is_final else parts.states.statuses(),
            stages_ms=parts.counters.stage_json(),
            batch_sizes=parts.counters.batch_sizes(),
            published=parts.publisher.by_output(),
            recent=parts.counters.recent(),
            turns=self._loop.turns,
            has_work=self._loop.has_work,
            engine_busy_s=self._loop.busy_ns / 1e9,
            shedding=parts.orders.in_force(),
            hanging=() if is_final else self._hanging(),
            is_final=is_final,
        )

    def _stream_reports(self) -> tuple[StreamReport, ...]:
        counted = self._parts.counters.by_stream()
        sources = self._streams.counts()
        return tuple(report_stream(name, one, counted.get(name, StreamCounts())) for name, one in sources.items())


def _peak_memory_bytes() -> int:
    # Not ru_maxrss: that starts at what the parent process had when it started this one.
    status = read_file(Path("/proc/self/status")).decode("ascii", "replace")
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * 1024
