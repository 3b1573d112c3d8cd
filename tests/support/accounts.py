"""Accounts of a run, made up: streams by their states and counts, at one moment or second by second."""

import dataclasses

from edge.media.camera import StreamStatus
from edge.runtime.pipeline.counters import RecentTimes, RunReport, RunTimes, StreamReport
from edge.types import DropReason, Precision, StreamId, StreamState

UP, DOWN, CONNECTING, ENDED = StreamState.UP, StreamState.DOWN, StreamState.CONNECTING, StreamState.ENDED
FIRST, SECOND = StreamId("s0"), StreamId("s1")


def counted(stream, **counts):
    """The counts of a stream, 0 where nothing else is said."""
    nothing = {"decoded": 0, "inferred": 0, "detections": 0, "dropped": {}, "errors": 0, "fps": 0.0}
    return StreamReport(stream=stream, **{**nothing, **counts})


def account(*streams, batches=1, **values):
    """An account of streams given as (state, decoded, inferred), further counts behind that as a dict."""
    names = [StreamId(f"s{index}") for index in range(len(streams))]
    report = RunReport(
        name="test",
        engine="test",
        precision=Precision.FP32,
        times=RunTimes(elapsed_s=1, cpu_s=1, peak_memory_bytes=1),
        streams=tuple(
            counted(name, decoded=decoded, inferred=inferred, **(more[0] if more else {}))
            for name, (_, decoded, inferred, *more) in zip(names, streams, strict=True)
        ),
        statuses={
            name: StreamStatus(stream=name, state=state, reason="", reconnects=0)
            for name, (state, *_) in zip(names, streams, strict=True)
        },
        stages_ms={},
        batch_sizes={1: batches},
        published={},
        recent=RecentTimes(),
        turns=1,
        has_work=False,
        hanging=(),
        is_final=False,
    )
    return dataclasses.replace(report, **values)


class Run:
    """Two streams, whose frames per second are given second by second; it stands for their batcher, too.

    `told` is for what the watcher has to say; the engine is at work for a share of the time. Streams that are `away`
    are in no account.
    """

    def __init__(self):
        self.told, self.terms, self.live = [], {}, frozenset((FIRST, SECOND))
        self.away, self.state, self.lost_as = frozenset(), UP, DropReason.SUPERSEDED
        self._watcher, self._second, self._busy_s = None, 0, 0.0
        self._counts = {name: [0, 0] for name in ("inferred", "lost", "capped", "skipped")}

    def watched_by(self, watcher):
        """Begin, with a watcher that is given each account."""
        self._watcher = watcher
        self._tick()

    def seconds(self, count, *, inferred, busy=1.0, **more):
        for _ in range(count):
            self._second += 1
            self._busy_s += busy
            for name, new in {"inferred": inferred, **more}.items():
                self._counts[name] = [one + other for one, other in zip(self._counts[name], new, strict=True)]
            self._tick()

    def _tick(self):
        streams = []
        for inferred, lost, capped, skipped in zip(*self._counts.values(), strict=True):
            more = {"dropped": {self.lost_as: lost, DropReason.CAPPED: capped}, "skipped": skipped}
            streams.append((self.state, inferred + lost + capped, inferred, more))
        times = RunTimes(elapsed_s=float(self._second), cpu_s=1, peak_memory_bytes=1)
        report = account(*streams, times=times, engine_busy_s=self._busy_s)
        there = tuple(one for one in report.streams if one.stream not in self.away)
        self._watcher.tick(dataclasses.replace(report, streams=there))
