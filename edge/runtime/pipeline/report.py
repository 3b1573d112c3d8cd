"""The account of a run: what happened to every frame and message, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge.media.camera import StreamStatus
from edge.media.shedding import Shedding
from edge.runtime.pipeline.counters import RecentTimes, StreamReport
from edge.types import Precision, StreamId, StreamState

__all__ = ["RunReport", "RunTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """What a run took, of the whole process."""

    elapsed_s: float
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A snapshot, or the final account, of a running pipeline.

    `turns` of the inference loop show that it is alive; `has_work` tells that frames are inferred now, or could be.
    `hanging` are the names of threads that do not come back from a call, `engine_busy_s` the time in which the engine
    had a batch, `shedding` what streams leave out now because the machine cannot keep up.
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
    shedding: Mapping[str, Shedding] = field(default_factory=dict)

    @property
    def inferred(self) -> int:
        """Frames inferred, all streams together."""
        return sum(stream.inferred for stream in self.streams)

    @property
    def batches(self) -> int:
        """Batches inferred."""
        return sum(self.batch_sizes.values())

    @property
    def is_balanced(self) -> bool:
        """Whether decoded = inferred + dropped for each stream, and accepted = delivered + waiting + dropped."""
        outputs = self.published.values()
        is_sent = all(one["accepted"] == one["delivered"] + one["waiting"] + one["dropped"] for one in outputs)
        return is_sent and all(stream.unaccounted == 0 for stream in self.streams)

    @property
    def silent_outputs(self) -> tuple[str, ...]:
        """Outputs that were given messages and delivered none."""
        return tuple(name for name, one in self.published.items() if one["accepted"] and not one["delivered"])

    @property
    def has_failed_streams(self) -> bool:
        """Whether a stream was down at the end."""
        return any(status.state is StreamState.DOWN for status in self.statuses.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
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
        status = self.statuses[stream.stream]
        return {
            "id": stream.stream,
            "state": status.state.value,
            "reason": status.reason,
            "reconnects": status.reconnects,
            "decoded": stream.decoded,
            "inferred": stream.inferred,
            "dropped": {reason.value: count for reason, count in stream.dropped.items()},
            "unaccounted": stream.unaccounted,
            "skipped": stream.skipped,
            "decode_errors": stream.errors,
            "detections": stream.detections,
            "fps": round(stream.fps, 2),
        }
