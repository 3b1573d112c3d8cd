import numpy as np
import pytest

from edge.runtime.pipeline.counters import FrameCounters, LatencyHistogram, report_stream
from edge.types import (
    ClockSource,
    Detections,
    DropReason,
    FrameHeader,
    FrameResult,
    ImageSize,
    SourceCounts,
    StageTimes,
    StreamId,
)

EAST = StreamId("east")


def result(detections=1, read_at_ns=0):
    found = Detections(
        xyxy=np.zeros((detections, 4), np.float32),
        score=np.ones(detections, np.float32),
        class_id=np.zeros(detections, np.int32),
    )
    header = FrameHeader(
        stream=EAST,
        frame=1,
        pts_ns=0,
        captured_at_ns=0,
        clock=ClockSource.FILE,
        source_size=ImageSize(width=4, height=4),
        read_at_ns=read_at_ns,
    )
    times = StageTimes(decode_ns=1_000_000, batch_wait_ns=2_000_000, infer_ns=10_000_000, post_ns=500_000)
    return FrameResult(header=header, detections=found, times=times)


def test_an_account_balances_when_every_frame_has_a_fate():
    counters = FrameCounters()
    counters.inferred([result(), result(detections=3)])
    counters.dropped(EAST, DropReason.SUPERSEDED)

    report = report_stream(EAST, SourceCounts(decoded=6, dropped={DropReason.LATE: 2}), counters)

    assert (report.inferred, report.detections) == (2, 4)
    assert report.dropped == {DropReason.LATE: 2, DropReason.SUPERSEDED: 1}
    assert report.unaccounted == 1


def test_a_reason_that_both_count_is_added():
    counters = FrameCounters()
    counters.dropped(EAST, DropReason.STOPPED)

    report = report_stream(EAST, SourceCounts(decoded=3, dropped={DropReason.STOPPED: 2}), counters)

    assert report.dropped == {DropReason.STOPPED: 3}
    assert report.unaccounted == 0


def test_percentiles_are_within_a_bucket_of_numpy():
    durations = np.random.default_rng(1).lognormal(16, 1, 20_000).astype(int)
    histogram = LatencyHistogram()
    for duration in durations:
        histogram.record(int(duration))

    for percent in (1, 50, 95, 99):
        assert histogram.percentile_ms(percent) == pytest.approx(np.percentile(durations, percent) / 1e6, rel=0.05)
    assert histogram.as_json()["mean"] == pytest.approx(durations.mean() / 1e6, rel=1e-3)


def test_an_empty_histogram_says_zero():
    assert LatencyHistogram().as_json() == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0}


def test_the_total_is_the_sum_of_the_stages():
    counters = FrameCounters()
    counters.inferred([result()])

    assert counters.stage_json()["total"]["mean"] == pytest.approx(13.5)
    assert counters.batch_sizes() == {1: 1}


def test_the_rate_is_between_the_first_and_the_last_frame():
    counters = FrameCounters()
    for second in range(10, 16):
        counters.inferred([result(read_at_ns=second * 1_000_000_000), result(read_at_ns=second * 1_000_000_000 + 1)])

    assert counters.of_stream(EAST).fps == pytest.approx(11 / 5)
