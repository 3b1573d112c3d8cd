"""A moment as metrics for Prometheus. They balance: see docs/operating.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from edge.deadline import age_s
from edge.http.prometheus import Distribution, metric
from edge.reading import available_bytes
from edge.runtime.look.status import Snapshot
from edge.runtime.pipeline.counters import FrameCounters, RunReport
from edge.types import StreamState

__all__ = ["metrics_of"]

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
    yield from _machine(moment)
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
    caps = {(name,): one.max_fps for name, one in moment.report.shedding.items() if one.max_fps is not None}
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


def _machine(moment: Snapshot) -> Iterator[Any]:
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
