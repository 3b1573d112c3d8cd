"""One moment as figures: read with Prometheus' own parser, each value worked out by hand."""

import time
from datetime import datetime, timezone

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edge.device.sensors import Sensors, ThermalZone
from edge.http.prometheus import Exposition
from edge.media.camera import StreamStatus
from edge.publish.message import ModelInfo
from edge.publish.messages import InfoMessage, PullMessage
from edge.runtime.look.status import Rates, Snapshot, metrics_of, status_json
from edge.runtime.pipeline.counters import FrameCounters, RecentTimes, RunTimes
from edge.types import DropReason, Precision, StreamId
from tests.support.service_parts import DOWN, UP, account, counted

A, B = StreamId("a"), StreamId("b")
MQTT = {
    "accepted": 100,
    "delivered": 80,
    "waiting": 15,
    "dropped": 5,
    "resent": 3,
    "in_flight": 7,
    "waiting_bytes": 9000,
    "numbered": 90,
    "numbered_acknowledged": 72,
    "numbered_waiting": 13,
    "numbered_in_gaps": 5,
    "numbered_lost": 0,
    "connected": 1,
    "connections": 2,
}

LOOK = PullMessage(
    device="gate-01", ring="canary", result="refused", code="verify.ring.expired", looked_at="2026-11-20T10:15:02Z"
)


def report(**changes):
    streams = (
        counted(
            A,
            decoded=100,
            inferred=80,
            detections=33,
            dropped={DropReason.LATE: 12, DropReason.MAX_FPS: 6},
            errors=1,
            fps=9.0,
        ),
        counted(B, decoded=7, inferred=7, fps=1.0),
    )
    values = {
        "precision": Precision.INT8,
        "times": RunTimes(elapsed_s=10, cpu_s=2.5, peak_memory_bytes=1000),
        "streams": streams,
        "statuses": {
            A: StreamStatus(stream=A, state=UP, reason="", reconnects=4),
            B: StreamStatus(stream=B, state=DOWN, reason="</script>", reconnects=0),
        },
        "batch_sizes": {1: 3, 2: 42},
        "published": {"mqtt": MQTT, "jsonl": {"accepted": 9, "delivered": 9, "waiting": 0, "dropped": 0}},
        "recent": RecentTimes(infer_p95_ms=8.04, age_p95_ms=20.0),
    }
    return account(**{**values, **changes})


def moment(**changes):
    info = InfoMessage(
        device="dev",
        software="edge-deploy 0",
        epoch=1,
        started_at="2026-11-20T10:15:02.113402Z",
        model=ModelInfo(name='a "model"\n', precision="int8", release="3f9a1c07b2de"),
        labels=["person"],
        streams=["a", "b"],
    )
    sensors = Sensors(
        zones={"gpu": ThermalZone(celsius=61.5, limit_c=99.0), "off": ThermalZone(celsius=None)},
        watts={"VDD_IN": 7.25},
        events={"under-voltage": 2},
        throttled_by=("gpu-throttle-alert",),
        mode="2 MAXN",
    )
    return Snapshot(
        info=info, report=report(), at_s=0.0, sensors=sensors, **{"is_on_trial": True, "look": LOOK, **changes}
    )


@pytest.fixture
def figures():
    counters = FrameCounters()
    for stage in counters._stages.values():
        for duration_ns in (100_000, 300_000, 300_000, 20_000_000_000):
            stage.record(duration_ns)
    text = Exposition(lambda: metrics_of(moment(), counters)).text().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(figures, name, **labels):
    return sum(
        value for (one, *pairs), value in figures.items() if one == name and labels.items() <= dict(pairs).items()
    )


def test_decoded_is_inferred_and_dropped_and_in_flight(figures):
    for stream, decoded, flying in (("a", 100, 2), ("b", 7, 0)):
        assert of(figures, "edge_frames_decoded_total", stream=stream) == decoded
        assert of(figures, "edge_frames_in_flight", stream=stream) == flying
        assert of(figures, "edge_frames_total", stream=stream) == decoded - flying
    assert of(figures, "edge_frames_total", stream="a", outcome="dropped_late") == 12


def test_numbered_is_acknowledged_and_spooled_and_in_gaps(figures):
    parts = [("acknowledged_total", 72), ("spooled", 13), ("in_gaps", 5), ("lost_total", 0)]
    assert [of(figures, f"edge_numbered_{name}") for name, _ in parts] == [count for _, count in parts]
    assert of(figures, "edge_numbered_total") == 90
    assert of(figures, "edge_mqtt_published_total", **{"class": "other"}) == 8


def test_every_output_balances(figures):
    for output in ("mqtt", "jsonl"):
        settled = ("delivered_total", "dropped_total", "waiting")
        total = sum(of(figures, f"edge_messages_{name}", output=output) for name in settled)
        assert total == of(figures, "edge_messages_accepted_total", output=output)


def test_histograms_are_exact_at_their_bounds(figures):
    for name, labels in (("edge_stage_seconds", {"stage": "infer"}), ("edge_frame_age_seconds", {})):
        assert of(figures, f"{name}_bucket", le="0.000131072", **labels) == 1
        assert of(figures, f"{name}_bucket", le="0.000524288", **labels) == 3
        assert of(figures, f"{name}_bucket", le="+Inf", **labels) == 4
        assert of(figures, f"{name}_sum", **labels) == pytest.approx(20.0007)
    assert of(figures, "edge_batch_size_bucket", le="1.0") == 3
    assert of(figures, "edge_batch_size_sum") == 87


def test_the_machine_and_what_runs_are_told(figures):
    assert of(figures, "edge_temperature_celsius", zone="gpu") == 61.5
    assert ("edge_temperature_celsius", ("zone", "off")) not in figures
    assert of(figures, "edge_power_watts", rail="VDD_IN") == 7.25
    assert of(figures, "edge_throttle_events_total", kind="under-voltage") == 2
    assert of(figures, "edge_throttled") == 1
    assert of(figures, "edge_trial") == 1
    assert of(figures, "edge_stream_up", stream="a") == 1
    assert of(figures, "edge_stream_up", stream="b") == 0
    assert of(figures, "edge_release_info", release="3f9a1c07b2de", model='a "model"\n', precision="int8") == 1
    assert of(figures, "edge_pull_info", ring="canary", result="refused", code="verify.ring.expired") == 1
    said_s = datetime(2026, 11, 20, 10, 15, 2, tzinfo=timezone.utc).timestamp()
    assert of(figures, "edge_pull_looked_age_seconds") == pytest.approx(max(0.0, time.time() - said_s), abs=60)
    assert of(figures, "edge_memory_available_bytes") > 1 << 20
    assert of(figures, "process_resident_memory_bytes") > 1 << 20


def test_the_document_of_the_page_has_the_same_figures():
    content = status_json(moment(fps={A: 9.04}, state="degraded", reason="down: b"))
    a, b = content["streams"]
    assert (a["decoded"], a["inferred"], a["dropped"], a["in_flight"]) == (100, 80, {"late": 12, "max_fps": 6}, 2)
    assert (a["fps"], b["fps"], b["reason"]) == (9.0, 0.0, "</script>")
    assert content["machine"]["zones"]["gpu"] == {"celsius": 61.5, "limit_c": 99.0}
    assert (content["state"], content["reason"], content["cpu_share"]) == ("degraded", "down: b", 0.25)


def test_rates_are_of_the_last_seconds():
    rates = Rates()
    for second, inferred in ((0, 0), (1, 10), (2, 20), (8, 20), (14, 20)):
        one = counted(A, inferred=inferred)
        found = rates.of(report(streams=(one,)), now_s=second)[A]
        expected = {0: 0, 1: 10, 2: 10, 8: 0, 14: 0}[second]
        assert found == pytest.approx(expected), second


def test_the_rate_of_a_stream_that_reloads_take_out_and_bring_back_is_of_now():
    rates = Rates()
    found = []
    for second, streams in enumerate(({A: 0, B: 900}, {A: 9}, {A: 18}, {A: 27, B: 900}, {A: 36, B: 905})):
        told = tuple(counted(name, inferred=inferred) for name, inferred in streams.items())
        found.append(rates.of(report(streams=told), now_s=float(10 * second)))
    assert found[3][B] == 0
    assert found[4] == pytest.approx({A: 0.9, B: 0.5})
