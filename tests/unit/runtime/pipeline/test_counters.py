import dataclasses

import numpy as np
import pytest

from edge.runtime.pipeline.counters import FrameCounters, LatencyHistogram, StreamCounts, StreamReport, report_stream
from edge.runtime.pipeline.shares import FrameCounts
from edge.types import DropReason, SourceCounts, StageTimes, StreamId
from tests.support import values
from tests.support.service_parts import UP, account

EAST = StreamId("east")


def result(detections=1, read_at_ns=0):
    times = StageTimes(decode_ns=1_000_000, batch_wait_ns=2_000_000, infer_ns=10_000_000, post_ns=500_000)
    return values.result(values.header(read_at_ns=read_at_ns), values.detections([[0] * 4] * detections), times)


def test_an_account_balances_when_every_frame_has_a_fate():
    counters = FrameCounters()
    counters.inferred([result(), result(detections=3)])
    counters.dropped(EAST, DropReason.SUPERSEDED)

    report = report_stream(EAST, SourceCounts(decoded=6, dropped={DropReason.LATE: 2}), counters.of_stream(EAST))

    assert (report.inferred, report.detections) == (2, 4)
    assert report.dropped == {DropReason.LATE: 2, DropReason.SUPERSEDED: 1}
    assert report.unaccounted == 1


def test_a_reason_that_both_count_is_added():
    counters = FrameCounters()
    counters.dropped(EAST, DropReason.STOPPED)

    report = report_stream(EAST, SourceCounts(decoded=3, dropped={DropReason.STOPPED: 2}), counters.of_stream(EAST))

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


@pytest.mark.parametrize("kind", [SourceCounts, StreamCounts, FrameCounts, StreamReport])
def test_no_count_is_below_zero_though_the_sum_comes_out(kind):
    whole = {name: 2 for name in kind.__slots__ if name not in ("stream", "dropped")}
    rest = {name: EAST if name == "stream" else {} for name in kind.__slots__ if name in ("stream", "dropped")}
    kind(**whole, **rest)

    for name in whole:
        with pytest.raises(ValueError, match=name):
            kind(**{**whole, name: -1}, **rest)
    if "dropped" in rest:
        with pytest.raises(ValueError, match="dropped"):
            kind(**whole, **{**rest, "dropped": {DropReason.CAPPED: 182, DropReason.STOPPED: -182}})


def test_messages_below_zero_do_not_balance_though_the_sum_comes_out():
    report = account((UP, 5, 5))
    good = {"accepted": 3, "delivered": 3, "waiting": 0, "dropped": 0}

    assert dataclasses.replace(report, published={"mqtt": good}).is_balanced
    assert not dataclasses.replace(report, published={"mqtt": good | {"waiting": -1, "dropped": 1}}).is_balanced
