"""A moment as the JSON document that the status page is drawn from: `edge.status/1`, plain values, no secrets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from edge.publish.convert import rfc3339_from_ns
from edge.runtime.look.moment import Snapshot
from edge.runtime.pipeline.counters import StreamReport

__all__ = ["status_json"]

_NOWHERE: Mapping[str, Any] = MappingProxyType({"zones": (), "lines": ()})


def status_json(moment: Snapshot, places: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> dict[str, Any]:
    """Return the document; what a machine does not have is null or empty.

    Args:
        moment: the run.
        places: `zones` and `lines` by stream, where there are some.
    """
    report, info = moment.report, moment.info
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
        "cpu_share": _cpu_share(moment),
        "memory_peak_bytes": report.times.peak_memory_bytes,
        "infer_p95_ms": _rounded(report.recent.infer_p95_ms),
        "age_p95_ms": _rounded(report.recent.age_p95_ms),
        "stages_ms": {name: dict(values) for name, values in report.stages_ms.items()},
        "streams": [_stream(moment, stream, places.get(stream.stream, _NOWHERE)) for stream in report.streams],
        "outputs": {name: dict(counts) for name, counts in report.published.items()},
        "machine": _machine(moment),
    }


def _stream(moment: Snapshot, stream: StreamReport, places: Mapping[str, Any]) -> dict[str, Any]:
    status = moment.report.statuses[stream.stream]
    order = moment.report.shedding.get(stream.stream)
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
        "cap_fps": None if order is None else _rounded(order.max_fps),
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


def _cpu_share(moment: Snapshot) -> float:
    times = moment.report.times
    return round(times.cpu_s / times.elapsed_s, 3) if times.elapsed_s > 0 else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
