"""A moment of a run, and the JSON document that the status page is drawn from: `edge.status/1`, no secrets."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from edge.device.sensors import Sensors
from edge.publish.convert import rfc3339_from_ns
from edge.publish.device_messages import DeployMessage, DeviceState, PullMessage
from edge.publish.messages import EventMessage, InfoMessage
from edge.runtime.pipeline.counters import RunReport, StreamReport
from edge.types import StreamId

__all__ = ["Rates", "Snapshot", "status_json"]

_WINDOW_S = 5.0

_NOWHERE: Mapping[str, Any] = MappingProxyType({"tracking": None, "ignore": (), "black": ()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run as of its last account; `release` is None for a pipeline file, `state` as subscribers see it.

    `fps` is what was inferred of each stream in the last seconds, `at_s` the monotonic time of the account.
    """

    info: InfoMessage
    report: RunReport
    at_s: float
    fps: dict[StreamId, float] = field(default_factory=dict)
    state: DeviceState = "online"
    reason: str | None = None
    sensors: Sensors = field(default_factory=Sensors)
    switch: DeployMessage | None = None
    is_on_trial: bool | None = None
    look: PullMessage | None = None


class Rates:
    """Frames per second over the last seconds, from accounts at any intervals."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[StreamId, int]]] = deque()

    def of(self, report: RunReport, *, now_s: float | None = None) -> dict[StreamId, float]:
        """Return the rate of each stream now, and remember the account."""
        now_s = time.monotonic() if now_s is None else now_s
        counts = {one.stream: one.inferred for one in report.streams}
        while len(self._seen) > 1 and now_s - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        then_s, before = self._seen[0] if self._seen else (now_s, counts)
        self._seen.append((now_s, counts))
        span_s = now_s - then_s
        return {name: (n - before.get(name, 0)) / span_s if span_s > 0 else 0.0 for name, n in counts.items()}


def status_json(
    moment: Snapshot,
    places: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    events: Sequence[EventMessage] = (),
) -> dict[str, Any]:
    """Return the document; what a machine does not have is null or empty.

    Args:
        places: `tracking`, `ignore` and `black` of the pipeline file by stream.
        events: the newest first.
    """
    report, info, times = moment.report, moment.info, moment.report.times
    return {
        "schema": "edge.status/1",
        "device": info.device,
        "software": info.software,
        "pipeline": report.name,
        "at": rfc3339_from_ns(time.time_ns()),
        "started_at": info.started_at,
        "age_s": round(time.monotonic() - moment.at_s, 1),
        "state": moment.state,
        "reason": moment.reason,
        "release": info.model.release,
        "model": info.model.name,
        "precision": report.precision.value,
        "engine": report.engine,
        "is_on_trial": moment.is_on_trial,
        "switch": None if moment.switch is None else msgspec.to_builtins(moment.switch),
        "fps": round(sum(moment.fps.values()), 1),
        "cpu_share": round(times.cpu_s / times.elapsed_s, 3) if times.elapsed_s > 0 else 0.0,
        "memory_peak_bytes": times.peak_memory_bytes,
        "infer_p95_ms": _rounded(report.recent.infer_p95_ms),
        "age_p95_ms": _rounded(report.recent.age_p95_ms),
        "stages_ms": {name: dict(values) for name, values in report.stages_ms.items()},
        "streams": [_stream(moment, stream, places.get(stream.stream, _NOWHERE)) for stream in report.streams],
        "outputs": {name: dict(counts) for name, counts in report.published.items()},
        "events": [_event(event) for event in events],
        "machine": _machine(moment),
    }


def _event(event: EventMessage) -> dict[str, Any]:
    return {
        "at": event.captured_at,
        "stream": event.stream,
        "kind": event.kind,
        "where": event.zone or event.line,
        "direction": event.direction,
        "label": event.label,
        "track_id": event.track_id,
        "duration_s": event.duration_s,
    }


def _stream(moment: Snapshot, stream: StreamReport, places: Mapping[str, Any]) -> dict[str, Any]:
    status = moment.report.statuses[stream.stream]
    cap_fps = moment.report.shedding.get(stream.stream)
    return {
        "id": stream.stream,
        "state": status.state.value,
        "reason": status.reason,
        "reconnects": status.reconnects,
        "fps": round(moment.fps.get(stream.stream, 0.0), 1),
        "decoded": stream.decoded,
        "inferred": stream.inferred,
        "dropped": {reason.value: count for reason, count in stream.dropped.items()},
        "skipped": stream.skipped,
        "cap_fps": None if cap_fps is None else _rounded(cap_fps),
        "in_flight": stream.unaccounted,
        "decode_errors": stream.errors,
        "detections": stream.detections,
        **places,
    }


def _machine(moment: Snapshot) -> dict[str, Any]:
    sensors = moment.sensors
    return {
        "zones": {
            name: {"celsius": _rounded(zone.celsius), "limit_c": _rounded(zone.limit_c)}
            for name, zone in sensors.zones.items()
        },
        "watts": {name: round(value, 2) for name, value in sensors.watts.items()},
        "mode": sensors.mode,
        "throttled_by": list(sensors.throttled_by),
        "events": dict(sensors.events),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
