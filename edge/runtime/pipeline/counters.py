"""Counts frames by fate, which balance, and times stages, by percentiles in constant memory.

The account of a run: what happened to every frame and message, and what it cost.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edge.media.camera import StreamStatus
from edge.types import Counted, DropReason, FrameResult, Precision, SourceCounts, StreamId, StreamState

__all__ = [
    "FrameCounters",
    "LatencyHistogram",
    "RecentTimes",
    "RunReport",
    "RunTimes",
    "StreamCounts",
    "StreamReport",
    "report_stream",
]

_RECENT_FRAMES = 512
_BUCKETS_PER_OCTAVE = 16  # 4.4 % wide: finer than anybody reads a latency


class LatencyHistogram:
    """Durations in buckets of equal ratio; not thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total_ns = 0

    def record(self, duration_ns: int) -> None:
        self._counts[int(math.log2(max(duration_ns, 1)) * _BUCKETS_PER_OCTAVE)] += 1
        self._total_ns += duration_ns

    @property
    def count(self) -> int:
        return self._counts.total()

    def percentile_ms(self, percent: float) -> float:
        """Return the duration that `percent` of all do not exceed, within 4.4 %; 0 when nothing was recorded."""
        wanted, seen = self.count * percent / 100, 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return float(2 ** ((bucket + 0.5) / _BUCKETS_PER_OCTAVE)) / 1e6
        return 0.0

    def at_most(self, bounds_octaves: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Return how many durations were at most 2**n nanoseconds for each n, exactly, and the sum of all in ns."""
        edges = [octave * _BUCKETS_PER_OCTAVE for octave in bounds_octaves]
        counted = tuple(sum(n for bucket, n in self._counts.items() if bucket < edge) for edge in edges)
        return counted, self._total_ns

    def as_json(self) -> dict[str, float]:
        """Return mean, p50, p95 and p99 in milliseconds."""
        mean_ms = self._total_ns / self.count / 1e6 if self.count else 0.0
        values = {"mean": mean_ms, **{f"p{percent}": self.percentile_ms(percent) for percent in (50, 95, 99)}}
        return {name: round(value, 3) for name, value in values.items()}


@dataclass(slots=True, kw_only=True)
class StreamCounts(Counted):
    """Counts of one stream's frames; `read_at_ns` are of its first and its last inferred frame."""

    inferred: int = 0
    detections: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    first_read_at_ns: int = 0
    last_read_at_ns: int = 0

    @property
    def fps(self) -> float:
        """Return the rate between the first and the last inferred frame."""
        span_s = (self.last_read_at_ns - self.first_read_at_ns) / 1e9
        return (self.inferred - 1) / span_s if span_s > 0 else 0.0

    def copy(self) -> StreamCounts:
        return replace(self, dropped=Counter(self.dropped))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTimes:
    """95th percentiles over the last 512 frames: inference, and reading to published; None: no frames yet."""

    infer_p95_ms: float | None = None
    age_p95_ms: float | None = None


class FrameCounters:
    """Counts of all streams together; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: defaultdict[StreamId, StreamCounts] = defaultdict(StreamCounts)
        self._stages = {name: LatencyHistogram() for name in ("decode", "batch_wait", "infer", "post", "total")}
        self._batch_sizes: Counter[int] = Counter()
        self._recent_infer_ns: deque[int] = deque(maxlen=_RECENT_FRAMES)
        self._recent_age_ns: deque[int] = deque(maxlen=_RECENT_FRAMES)

    def dropped(self, stream: StreamId, reason: DropReason) -> None:
        with self._lock:
            self._streams[stream].dropped[reason] += 1

    def inferred(self, results: list[FrameResult]) -> None:
        """Count the frames of one batch."""
        with self._lock:
            self._batch_sizes[len(results)] += 1
            for result in results:
                self._inferred_one(result)

    def stage_json(self) -> dict[str, dict[str, float]]:
        """Percentiles of each stage in milliseconds."""
        with self._lock:
            return {name: histogram.as_json() for name, histogram in self._stages.items()}

    def stages_at_most(self, bounds_octaves: Sequence[int]) -> dict[str, tuple[tuple[int, ...], int, int]]:
        """Return for each stage what `LatencyHistogram.at_most` gives, and the count of all."""
        with self._lock:
            return {name: (*one.at_most(bounds_octaves), one.count) for name, one in self._stages.items()}

    def recent(self) -> RecentTimes:
        """Return how long the last frames took: what a run was like hours ago is no news."""
        with self._lock:
            return RecentTimes(infer_p95_ms=_p95_ms(self._recent_infer_ns), age_p95_ms=_p95_ms(self._recent_age_ns))

    def batch_sizes(self) -> dict[int, int]:
        """Return how many batches had each size."""
        with self._lock:
            return dict(sorted(self._batch_sizes.items()))

    def of_stream(self, stream: StreamId) -> StreamCounts:
        with self._lock:
            return self._streams.get(stream, StreamCounts()).copy()

    def by_stream(self) -> Mapping[StreamId, StreamCounts]:
        """Return the counts of all streams that had frames."""
        with self._lock:
            return {name: one.copy() for name, one in self._streams.items()}

    def _inferred_one(self, result: FrameResult) -> None:
        counted = self._streams[result.header.stream]
        counted.first_read_at_ns = counted.first_read_at_ns or result.header.read_at_ns
        counted.last_read_at_ns = result.header.read_at_ns
        counted.inferred += 1
        counted.detections += len(result.detections)
        times = result.times
        parts = (times.decode_ns, times.batch_wait_ns, times.infer_ns, times.post_ns)
        for name, duration_ns in zip(self._stages, (*parts, sum(parts)), strict=True):
            self._stages[name].record(duration_ns)
        self._recent_infer_ns.append(times.infer_ns)
        self._recent_age_ns.append(sum(parts))


def _p95_ms(durations_ns: Collection[int]) -> float | None:
    if not durations_ns:
        return None
    return sorted(durations_ns)[math.ceil(0.95 * len(durations_ns)) - 1] / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport(Counted):
    """The account of one stream. `unaccounted` is 0 when decoded = inferred + sum of dropped; `skipped` is apart."""

    stream: StreamId
    decoded: int
    inferred: int
    detections: int
    dropped: Mapping[DropReason, int]
    errors: int
    fps: float
    skipped: int = 0

    @property
    def unaccounted(self) -> int:
        """Frames that are neither inferred nor counted as dropped (in flight while a run goes on)."""
        return self.decoded - self.inferred - sum(self.dropped.values())

    def as_json(self, status: StreamStatus) -> dict[str, Any]:
        return {
            "id": self.stream,
            "state": status.state.value,
            "reason": status.reason,
            "reconnects": status.reconnects,
            "decoded": self.decoded,
            "inferred": self.inferred,
            "dropped": {reason.value: count for reason, count in self.dropped.items()},
            "skipped": self.skipped,
            "decode_errors": self.errors,
            "detections": self.detections,
        }


def report_stream(stream: StreamId, source: SourceCounts, counted: StreamCounts) -> StreamReport:
    """Return the account of one stream from what its source and the pipeline counted.

    While a run goes on the pipeline is asked first: no frame is then counted behind a source and not yet in it.
    """
    return StreamReport(
        stream=stream,
        decoded=source.decoded,
        inferred=counted.inferred,
        detections=counted.detections,
        dropped={
            reason: counted.dropped.get(reason, 0) + source.dropped.get(reason, 0)
            for reason in DropReason
            if reason in counted.dropped or reason in source.dropped
        },
        errors=source.errors,
        fps=counted.fps,
        skipped=source.skipped,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Times of a run, of the whole process."""

    elapsed_s: float
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A snapshot, or the final account, of a running pipeline.

    `turns` of the inference loop show that it is alive; `has_work` tells that frames are inferred now, or could be.
    `hanging` are the names of threads that do not come back from a call, `engine_busy_s` the time in which the engine
    had a batch, `shedding` the caps of streams, frames per second, because the machine cannot keep up.
    """

    name: str
    engine: str
    precision: Precision
    times: RunTimes
    streams: tuple[StreamReport, ...]
    statuses: Mapping[StreamId, StreamStatus]
    stages_ms: Mapping[str, Mapping[str, float]]
    batch_sizes: Mapping[int, int]
    published: Mapping[str, Mapping[str, int]]
    recent: RecentTimes
    turns: int
    has_work: bool
    hanging: tuple[str, ...]
    is_final: bool
    engine_busy_s: float = 0.0
    shedding: Mapping[str, float] = field(default_factory=dict)

    @property
    def inferred(self) -> int:
        return sum(stream.inferred for stream in self.streams)

    @property
    def batches(self) -> int:
        return sum(self.batch_sizes.values())

    @property
    def is_balanced(self) -> bool:
        """Whether decoded = inferred + dropped for each stream, and accepted = delivered + waiting + dropped.

        Of messages no count is negative; of frames none can be.
        """
        outputs = self.published.values()
        is_sent = all(one["accepted"] == one["delivered"] + one["waiting"] + one["dropped"] for one in outputs)
        are_counts = all(min(one.values()) >= 0 for one in outputs)
        return is_sent and are_counts and all(stream.unaccounted == 0 for stream in self.streams)

    @property
    def silent_outputs(self) -> tuple[str, ...]:
        """Outputs that were given messages and delivered none."""
        return tuple(name for name, one in self.published.items() if one["accepted"] and not one["delivered"])

    @property
    def has_failed_streams(self) -> bool:
        """Whether a stream was down at the end."""
        return any(status.state is StreamState.DOWN for status in self.statuses.values())

    def as_json(self) -> dict[str, Any]:
        times = self.times
        return {
            "pipeline": self.name,
            "engine": self.engine,
            "precision": self.precision.value,
            "seconds": round(times.elapsed_s, 3),
            "inferred": self.inferred,
            "fps": round(self.inferred / times.elapsed_s, 2) if times.elapsed_s else 0.0,
            "cpu_seconds": round(times.cpu_s, 3),
            "cpu_ms_per_frame": round(times.cpu_s * 1e3 / self.inferred, 3) if self.inferred else None,
            "peak_memory_bytes": times.peak_memory_bytes,
            "streams": [self._stream_json(stream) for stream in self.streams],
            "stages_ms": {name: dict(values) for name, values in self.stages_ms.items()},
            "batch_sizes": {str(size): count for size, count in self.batch_sizes.items()},
            "published": {name: dict(one) for name, one in self.published.items()},
            "balanced": self.is_balanced if self.is_final else None,
        }

    def _stream_json(self, stream: StreamReport) -> dict[str, Any]:
        shared = stream.as_json(self.statuses[stream.stream])
        return {**shared, "unaccounted": stream.unaccounted, "fps": round(stream.fps, 2)}
