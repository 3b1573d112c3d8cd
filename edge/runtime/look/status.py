"""A moment of a run: as the JSON document that the status page is drawn from, and as metrics for Prometheus.

The document is `edge.status/1` and has no secrets; the metrics balance: see docs/operating.md.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from edge.deadline import age_s
from edge.device.sensors import Sensors
from edge.http.prometheus import Distribution, metric
from edge.publish.frames import rfc3339_from_ns
from edge.publish.messages import DeployMessage, DeviceState, EventMessage, InfoMessage, PullMessage
from edge.reading import available_bytes
from edge.runtime.pipeline.counters import FrameCounters, RunReport, StreamReport
from edge.types import StreamId, StreamState

__all__ = ["Rates", "Snapshot", "metrics_of", "status_json"]

_WINDOW_S = 5.0
# Powers of two, because the histograms are exact there: 131 us to 8.6 s.
_OCTAVES = range(17, 34)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_STREAM = ("stream",)
_OF_STREAMS = {
    "edge_frames_decoded_total": ("Frames decoded.", "decoded"),
    "edge_frames_in_flight": ("Frames decoded that nothing has become of yet.", "unaccounted"),
    "edge_pictures_skipped_total": ("Coded pictures that were not decoded: the decoder fell behind.", "skipped"),
    "edge_decode_errors_total": ("Errors of the decoder.", "errors"),
    "edge_detections_total": ("Detections found.", "detections"),
}
"""Text, and the count of `StreamReport`."""
_LOOK = ("ring", "result", "code")
_counter, _gauge = partial(metric, "counter"), partial(metric, "gauge")
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
        self._seen.append((now_s, counts))
        # By stream: the account of one that a reload brings back may be of days before it was taken out.
        first = {name: (then_s, n) for then_s, before in reversed(self._seen) for name, n in before.items()}
        rates = {}
        for name, n in counts.items():
            then_s, before_n = first[name]
            rates[name] = (n - before_n) / (now_s - then_s) if now_s > then_s else 0.0
        return rates


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
    cap_fps = moment.report.shedding.get(stream.stream)
    return {
        **stream.as_json(moment.report.statuses[stream.stream]),
        "fps": round(moment.fps.get(stream.stream, 0.0), 1),
        "cap_fps": None if cap_fps is None else _rounded(cap_fps),
        "in_flight": stream.unaccounted,
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


def metrics_of(moment: Snapshot, counters: FrameCounters) -> Iterator[Any]:
    """Yield all metrics of a moment; the stages as they are now."""
    yield from _frames(moment.report)
    yield from _streams(moment)
    yield from _stages(counters)
    yield _batches(moment.report)
    yield from _messages(moment.report.published)
    mqtt = moment.report.published.get("mqtt")
    if mqtt is not None:
        yield from _mqtt(mqtt)
    yield from _machine_metrics(moment)
    yield from _release(moment)


def _frames(report: RunReport) -> Iterator[Any]:
    streams = report.streams
    outcomes = {(one.stream, "inferred"): float(one.inferred) for one in streams}
    for one in streams:
        outcomes |= {(one.stream, f"dropped_{reason.value}"): float(n) for reason, n in one.dropped.items()}
    for name, (text, count) in _OF_STREAMS.items():
        kind = _counter if name.endswith("_total") else _gauge
        yield kind(name, text, _STREAM, {(one.stream,): float(getattr(one, count)) for one in streams})
    yield _counter(
        "edge_frames_total",
        "Frames by what became of them; with edge_frames_in_flight they add up to edge_frames_decoded_total.",
        ("stream", "outcome"),
        outcomes,
    )


def _streams(moment: Snapshot) -> Iterator[Any]:
    statuses = moment.report.statuses
    up = {(name,): float(status.state is StreamState.UP) for name, status in statuses.items()}
    again = {(name,): float(status.reconnects) for name, status in statuses.items()}
    yield _gauge("edge_stream_up", "1 while frames come.", _STREAM, up)
    yield _counter("edge_stream_reconnects_total", "How often a stream was opened again.", _STREAM, again)
    caps = {(name,): max_fps for name, max_fps in moment.report.shedding.items()}
    yield _gauge("edge_stream_cap_fps", "Frame rate above which frames are let go, by overload.", _STREAM, caps)
    yield _gauge("edge_overload_level", "0: all frames, 1: rates capped.", (), {(): float(bool(caps))})


def _stages(counters: FrameCounters) -> Iterator[Any]:
    bounds = [2.0**octave / 1e9 for octave in _OCTAVES]
    taken: dict[tuple[str, ...], float | Distribution] = {
        (name,): Distribution(bounds=bounds, at_most=at_most, count=count, total=total_ns / 1e9)
        for name, (at_most, total_ns, count) in counters.stages_at_most(_OCTAVES).items()
    }
    whole = taken.pop(("total",))
    yield metric("histogram", "edge_stage_seconds", "How long frames spent in each stage.", ("stage",), taken)
    text = "How old frames were when they were published: from the decoder's output on."
    yield metric("histogram", "edge_frame_age_seconds", text, (), {(): whole})


def _batches(report: RunReport) -> Any:
    sizes = report.batch_sizes
    at_most = [sum(count for size, count in sizes.items() if size <= bound) for bound in _BATCH_SIZES]
    total = sum(size * count for size, count in sizes.items())
    whole = Distribution(bounds=_BATCH_SIZES, at_most=at_most, count=report.batches, total=total)
    return metric("histogram", "edge_batch_size", "Frames in a batch.", (), {(): whole})


def _messages(published: Mapping[str, Mapping[str, int]]) -> Iterator[Any]:
    def of(key: str) -> dict[tuple[str, ...], float]:
        return {(output,): float(counts[key]) for output, counts in published.items()}

    label = ("output",)
    yield _counter("edge_messages_accepted_total", "Messages given to an output.", label, of("accepted"))
    yield _counter("edge_messages_delivered_total", "Messages that have arrived.", label, of("delivered"))
    yield _counter("edge_messages_dropped_total", "Messages let go.", label, of("dropped"))
    yield _gauge("edge_messages_waiting", "Messages accepted and not settled yet.", label, of("waiting"))


def _mqtt(counts: Mapping[str, int]) -> Iterator[Any]:
    numbered = {
        "edge_numbered_total": ("Messages that were given a number.", "numbered"),
        "edge_numbered_acknowledged_total": ("Numbered messages that have arrived.", "numbered_acknowledged"),
        "edge_numbered_lost_total": ("Numbers lost and not declared.", "numbered_lost"),
        "edge_mqtt_connections_total": ("Connections that the broker has accepted.", "connections"),
        "edge_mqtt_duplicates_sent_total": ("Messages that arrived more than once.", "resent"),
    }
    for name, (text, key) in numbered.items():
        yield _counter(name, text, (), {(): counts[key]})
    # Not a counter: a gap record that cannot be delivered itself takes its numbers to those that are lost.
    yield _gauge("edge_numbered_in_gaps", "Numbers declared lost by gap records.", (), {(): counts["numbered_in_gaps"]})
    yield _gauge("edge_numbered_spooled", "Numbered messages that wait.", (), {(): counts["numbered_waiting"]})
    arrived = counts["numbered_acknowledged"]
    by_class = {("numbered",): float(arrived), ("other",): float(counts["delivered"] - arrived)}
    yield _counter("edge_mqtt_published_total", "Messages that the broker has acknowledged.", ("class",), by_class)
    yield _gauge("edge_mqtt_connected", "1 while the broker is connected.", (), {(): counts["connected"]})
    yield _gauge("edge_mqtt_inflight", "Messages sent and not acknowledged.", (), {(): counts["in_flight"]})
    by_reason = {(key.removeprefix("declared_"),): float(n) for key, n in counts.items() if key.startswith("declared_")}
    yield _counter("edge_gaps_total", "Numbers let go and declared since the start.", ("reason",), by_reason)
    tiers = {("memory",): float(counts["waiting_bytes"])}
    if "spool_bytes" in counts:
        tiers["disk",] = float(counts["spool_bytes"])
        yield _gauge("edge_spool_oldest_seconds", "Age of the oldest on the disk.", (), {(): counts["spool_oldest_s"]})
        yield _gauge("edge_spool_works", "0 while the disk takes no messages.", (), {(): counts["spool_works"]})
    yield _gauge("edge_spool_bytes", "What waits, by where it lies.", ("tier",), tiers)


def _machine_metrics(moment: Snapshot) -> Iterator[Any]:
    sensors = moment.sensors
    celsius = {(name,): zone.celsius for name, zone in sensors.zones.items() if zone.celsius is not None}
    yield _gauge("edge_temperature_celsius", "As the kernel tells it.", ("zone",), celsius)
    watts = {(name,): value for name, value in sensors.watts.items()}
    yield _gauge("edge_power_watts", "By rail; one may be part of another.", ("rail",), watts)
    kinds = {(name,): float(count) for name, count in sensors.events.items()}
    yield _counter("edge_throttle_events_total", "How often the machine was held back.", ("kind",), kinds)
    held = {(): float(bool(sensors.throttled_by))}
    yield _gauge("edge_throttled", "1 while heat or power holds the machine back.", (), held)
    if (free_bytes := available_bytes()) is not None:
        yield _gauge("edge_memory_available_bytes", "Of the machine.", (), {(): float(free_bytes)})


def _release(moment: Snapshot) -> Iterator[Any]:
    model = moment.info.model
    values = (model.release or "", moment.report.engine, model.name, model.precision)
    yield _gauge("edge_release_info", "What runs.", ("release", "engine", "model", "precision"), {values: 1.0})
    look = moment.look
    if look is not None and look.ring is not None and look.result is not None:
        told = (look.ring, look.result, look.code or "")
        yield _gauge("edge_pull_info", "What the last look at the registry came to.", _LOOK, {told: 1.0})
    ago_s = None if look is None else age_s(look.looked_at)
    if ago_s is not None:
        text = "For how long the registry has not said what the ring has."
        yield _gauge("edge_pull_looked_age_seconds", text, (), {(): float(ago_s)})
    if moment.is_on_trial is not None:
        yield _gauge("edge_trial", "1 while the release is on trial.", (), {(): moment.is_on_trial})
