"""What happened to each frame, and how long each stage took: counts that balance, percentiles in constant memory."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edge.types import DropReason, FrameResult, SourceCounts, StreamId

__all__ = ["FrameCounters", "LatencyHistogram", "RecentTimes", "StreamCounts", "StreamReport", "report_stream"]

_RECENT_FRAMES = 512
_BUCKETS_PER_OCTAVE = 16  # 4.4 % wide: finer than anybody reads a latency


class LatencyHistogram:
    """Durations in buckets of equal ratio; not thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total_ns = 0

    def record(self, duration_ns: int) -> None:
        """Count one duration."""
        self._counts[int(math.log2(max(duration_ns, 1)) * _BUCKETS_PER_OCTAVE)] += 1
        self._total_ns += duration_ns

    @property
    def count(self) -> int:
        """How many durations were recorded."""
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


@dataclass(slots=True)
class _Stream:
    inferred: int = 0
    detections: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    first_read_at_ns: int = 0
    last_read_at_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCounts:
    """What the pipeline did with the frames of one stream; `fps` is between its first and its last inferred frame."""

    inferred: int = 0
    detections: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    fps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTimes:
    """95th percentiles over the last 512 frames: inference, and reading to published; None: no frames yet."""

    infer_p95_ms: float | None = None
    age_p95_ms: float | None = None


class FrameCounters:
    """Counts of all streams together; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[StreamId, _Stream] = {}
        self._stages = {name: LatencyHistogram() for name in ("decode", "batch_wait", "infer", "post", "total")}
        self._batch_sizes: Counter[int] = Counter()
        self._recent_infer_ns: deque[int] = deque(maxlen=_RECENT_FRAMES)
        self._recent_age_ns: deque[int] = deque(maxlen=_RECENT_FRAMES)

    def dropped(self, stream: StreamId, reason: DropReason) -> None:
        """Count a frame that was read and let go."""
        with self._lock:
            self._streams.setdefault(stream, _Stream()).dropped[reason] += 1

    def inferred(self, results: list[FrameResult]) -> None:
        """Count the frames of one batch."""
        with self._lock:
            self._batch_sizes[len(results)] += 1
            for result in results:
                self._inferred_one(result)

    def stage_json(self) -> dict[str, dict[str, float]]:
        """Return the percentiles of each stage in milliseconds."""
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
        """Return what was done with the frames of a stream so far."""
        with self._lock:
            counted = self._streams.get(stream, _Stream())
            span_s = (counted.last_read_at_ns - counted.first_read_at_ns) / 1e9
            return StreamCounts(
                inferred=counted.inferred,
                detections=counted.detections,
                dropped=Counter(counted.dropped),
                fps=(counted.inferred - 1) / span_s if span_s > 0 else 0.0,
            )

    def _inferred_one(self, result: FrameResult) -> None:
        counted = self._streams.setdefault(result.header.stream, _Stream())
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
class StreamReport:
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


def report_stream(stream: StreamId, source: SourceCounts, counters: FrameCounters) -> StreamReport:
    """Return the account of one stream from what its source and the pipeline counted."""
    counted = counters.of_stream(stream)
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
