"""Streams that come with a reload begin a few at a time, so that those which run keep their share of the machine."""

import numpy as np
import pytest

from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.serve.service import RunningStreams
from edge.types import DropReason, ImageSize, Preprocess, SourceCounts, StreamId
from tests.support.service_parts import RecordedSource, Stall
from tests.support.wait import wait_until

PREPROCESS = Preprocess(size=ImageSize(width=8, height=8))


def source(name):
    return RecordedSource(StreamId(name), [Stall(float("inf"))], preprocess=PREPROCESS, is_live=True)


@pytest.fixture
def running():
    counters, ended = FrameCounters(), []
    canvases = [np.zeros((1, 8, 8, 3), np.uint8) for _ in range(2)]
    batcher = Batcher(canvases, max_wait_s=0.01, pad_value=0, on_drop=counters.dropped)
    streams = RunningStreams([source("steady")], batcher, counters, on_end=ended.append)
    streams.start()
    yield streams
    for puller in streams.stop():
        assert puller.join(10)


def names(pullers):
    return {puller.source.stream for puller in pullers}


def test_many_streams_begin_over_several_looks(running):
    running.change([source(f"s{number}") for number in range(7)], removed=[])
    seen = []
    for _ in range(4):
        running.settle()
        seen.append(len(running.pullers) - 1)

    assert seen == [2, 4, 6, 7]
    assert running.are_alive


def test_one_that_does_not_end_holds_up_its_own_successor_only(running):
    running.change([source("steady"), source("a"), source("b"), source("c")], removed=[])
    steady = running.all_pullers[-1]
    running.settle()

    assert steady.source.stream == "steady"
    assert {"a", "b"} <= names(running.pullers)
    wait_until(lambda: not steady.is_alive, what="the end of the one before")
    running.settle()
    running.settle()
    assert names(running.pullers) == {"steady", "a", "b", "c"}


def test_a_stream_that_goes_before_its_turn_is_never_begun(running):
    running.change([source(f"s{number}") for number in range(3)], removed=[])
    running.settle()
    running.change([], removed=[StreamId("s2")])
    running.settle()

    assert names(running.pullers) == {"steady", "s0", "s1"}


def test_counts_of_a_stream_are_summed_one_by_one_and_reason_by_reason():
    first = SourceCounts(decoded=5, dropped={DropReason.LATE: 1, DropReason.CAPPED: 2}, errors=3, skipped=4)
    second = SourceCounts(decoded=50, dropped={DropReason.LATE: 10, DropReason.MAX_FPS: 20}, errors=30, skipped=40)

    dropped = {DropReason.LATE: 11, DropReason.CAPPED: 2, DropReason.MAX_FPS: 20}
    assert first + second == SourceCounts(decoded=55, dropped=dropped, errors=33, skipped=44)
