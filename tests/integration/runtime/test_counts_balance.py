"""Frames from real decoders through limit, cap and batcher, in any order of events: every one is counted, and once.

GStreamer runs by a clock that jumps from frame to frame; PyAV, which has none to give it, by that of the machine.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edge.config.schema import StreamConfig
from edge.media.address import parse_address
from edge.media.camera import Camera
from edge.media.rate import Cap
from edge.media.select import make_connection
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters, report_stream
from edge.types import DropReason, StreamId
from tests.support import values
from tests.support.clips import CANVAS, write_clip
from tests.support.rtsp import require_gstreamer

TEST_FPS, CLIP_FPS = 25, 400


def jumping_clock():
    import gi

    gi.require_version("GstCheck", "1.0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)
        from gi.repository import GstCheck
    return GstCheck.TestClock.new()


class Stream:
    """A source as `make_source` puts it together, and what its puller has in hand."""

    def __init__(self, uri, *, max_fps, decoder):
        config = StreamConfig(id=decoder, uri=uri, max_fps=max_fps, decoder=decoder, loop=True, realtime=True)
        self.id, self.order, self.clock = StreamId(decoder), Cap(), None
        self._config, self._address = config, parse_address(uri, base_dir=Path.cwd())
        self.source = Camera(
            self.id,
            self._connect,
            is_live=True,
            is_endless=True,
            stall_s=60.0,
            first_frame_s=60.0,
            max_fps=max_fps,
        )
        self.turn = self.frame = None
        self.seen: dict[DropReason, int] = {}
        self.source.open()

    def _connect(self):
        made = make_connection(
            self._config, self._address, decoder=self._config.decoder, preprocess=CANVAS, cap=self.order
        )
        if self._config.decoder == "software":
            self.clock = jumping_clock()
            made.pipeline.use_clock(self.clock)
        return made

    def decode(self, frames):
        if self.clock is None:
            time.sleep(frames / CLIP_FPS)
            return
        for _ in range(frames):
            until = time.monotonic() + 60
            while not self.clock.crank():
                assert time.monotonic() < until, "the source asks its clock for nothing"
                time.sleep(0.0002)


class Line:
    """Both streams, one batcher with a single row, and the counters of a service; one thread plays all theirs."""

    def __init__(self, streams):
        self.streams, self.counters = streams, FrameCounters()
        self.batcher = Batcher(
            [np.zeros((1, CANVAS.size.height, CANVAS.size.width, 3), np.uint8) for _ in range(2)],
            max_wait_s=0,
            pad_value=0,
            on_drop=self.counters.dropped,
        )

    def read(self):
        for one in self.streams:
            if one.turn is not None:  # its puller waits for a row
                continue
            one.frame = one.source.read(0.005)
            if one.frame is not None:
                self.batcher.join(one.id, is_live=True)
                one.turn = self.batcher.ask(one.id, is_live=True)
        self._fill()

    def infer(self):
        batch = self.batcher.take(0)
        if batch is not None:
            self.counters.inferred([values.result(row.header, values.detections()) for row in batch.rows])
            self.batcher.give_back(batch.index)
        self._fill()
        return batch

    def _fill(self):
        for one in self.streams:
            if one.turn is None or not one.turn.is_over:
                continue
            if one.turn.ticket is None:
                self.counters.dropped(one.id, DropReason.STOPPED)
            else:
                self.batcher.fill(one.turn.ticket, one.frame)
            one.turn = one.frame = None

    def reports(self):
        """Return the accounts, as the service makes them; what was dropped stays so."""
        counted = {one.id: self.counters.of_stream(one.id) for one in self.streams}
        found = [report_stream(one.id, one.source.counts(), counted[one.id]) for one in self.streams]
        for one, report in zip(self.streams, found, strict=True):
            for reason, count in one.seen.items():
                assert report.dropped.get(reason, 0) >= count, reason
            one.seen = dict(report.dropped)
        return found

    def end(self):
        for one in self.streams:
            one.source.close()
        self.batcher.close()
        self._fill()
        while self.infer() is not None:
            pass
        return self.reports()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    require_gstreamer("videotestsrc", "capssetter")
    return write_clip(tmp_path_factory.mktemp("counts") / "clip.mp4", count=60, fps=CLIP_FPS)


def line_of(clip, max_fps):
    uris = {"software": f"test://?width=64&height=48&fps={TEST_FPS}", "pyav": str(clip)}
    of = dict(zip(uris, max_fps, strict=True))
    return Line([Stream(uri, max_fps=of[decoder], decoder=decoder) for decoder, uri in uris.items()])


MAX_FPS = st.sampled_from([None, 1.0, 7.5, 12.0, 25.0])
STEPS = st.lists(
    st.tuples(st.just("decode"), st.integers(1, 9))
    | st.tuples(st.sampled_from(["read", "infer"]), st.just(0))
    | st.tuples(st.just("cap"), st.sampled_from([0.5, 5.0, 11.5, 20.0, None])),
    min_size=4,
    max_size=30,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(max_fps=st.tuples(MAX_FPS, MAX_FPS), steps=STEPS)
@example(max_fps=(12.0, 12.0), steps=[("cap", 5.0), *[("decode", 5), ("read", 0)] * 6])
def test_every_frame_has_one_fate_whatever_limits_it_and_none_is_counted_below_zero(clip, max_fps, steps):
    line = line_of(clip, max_fps)
    try:
        for what, amount in steps:
            if what == "decode":
                for one in line.streams:
                    one.decode(amount)
            elif what == "cap":
                for one in line.streams:
                    one.order.max_fps = amount
            else:
                getattr(line, what)()
            assert all(report.unaccounted >= 0 for report in line.reports())
    finally:
        ended = line.end()

    for report in ended:
        assert report.decoded == report.inferred + sum(report.dropped.values()), report


def test_what_a_cap_lets_go_is_not_counted_for_the_streams_own_limit_too(clip):
    """25 fps under a cap of 5 leave 5; a limit of 12 behind it lets none of those go."""
    line = line_of(clip, (12.0, None))
    camera = line.streams[0]
    camera.order.max_fps = 5.0
    line.read()
    for _ in range(50):
        camera.decode(1)
        line.read()
        line.infer()

    report = line.end()[0]

    assert report.decoded == 50
    assert 38 <= report.dropped[DropReason.CAPPED] <= 40  # two may have passed before the cap was heard of
    assert report.dropped.get(DropReason.MAX_FPS, 0) <= 1
    assert report.inferred + report.dropped.get(DropReason.STOPPED, 0) + report.dropped.get(DropReason.LATE, 0) >= 9
