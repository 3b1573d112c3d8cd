"""The service with recorded sources and a real engine on a tiny model: every frame has a fate, whatever happens."""

import dataclasses
import itertools
import json
import logging
import threading
import time

import numpy as np
import onnx
import pytest

from edge.device.units import Notifier
from edge.engine.openvino.engine import OpenVinoEngine
from edge.errors import EngineError, SourceError
from edge.media.camera import StreamStatus
from edge.model.inspect import inspect_model
from edge.runtime.serve import overload
from edge.runtime.serve.serve import Heartbeat, serve_pipeline
from edge.runtime.serve.service import Service
from edge.types import DropReason, StreamId, StreamState
from tests.support.service_parts import PICTURE, Breakage, RecordedSource, live, parts_of, recorded
from tests.support.tables import with_joint_scale
from tests.support.wait import wait_until


class SlowEngine:
    """A real engine that takes longer, and may fail at a given batch."""

    def __init__(self, engine, *, extra_s=0.0, fails_at=None):
        self._engine = engine
        self._extra_s = extra_s
        self._fails_at = fails_at
        self._batches = 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def wait(self, index):
        output = self._engine.wait(index)
        self._batches += 1
        threading.Event().wait(self._extra_s)  # the work of a larger model
        if self._batches == self._fails_at:
            raise EngineError("the device is gone")
        return output


@pytest.fixture
def make(spec, tmp_path):
    def make_parts(sources, *, model=spec, score_threshold=0.5, max_batch=4, max_wait_s=0.01, **slow):
        engine = SlowEngine(OpenVinoEngine(model, max_batch=max_batch, threads=1), **slow)
        results = []
        more = {"on_results": results.extend, "score_threshold": score_threshold, "max_wait_s": max_wait_s}
        return parts_of(spec, engine, sources, tmp_path / "out.jsonl", **more), results

    return make_parts


def pictures(count, *, height=40, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (height, 64, 3), np.uint8) for _ in range(count)]


def by_name(report):
    return {stream.stream: stream for stream in report.streams}


def test_a_stream_that_breaks_ends_alone(make, spec):
    broken = [*pictures(5), Breakage(SourceError("the camera is gone", is_permanent=True))]
    parts, _ = make([recorded(spec, "broken", broken), recorded(spec, "well", pictures(40))])

    report = Service(parts).run(threading.Event())

    assert by_name(report)["well"].inferred == 40
    assert by_name(report)["broken"].inferred == 5
    assert report.statuses["broken"].state is StreamState.DOWN
    assert "the camera is gone" in report.statuses["broken"].reason
    assert report.has_failed_streams
    assert report.is_balanced


class HangingSource:
    """A live source whose `hangs_at`-th read never comes back, nor one that is not to wait, until it is let go."""

    def __init__(self, source, *, hangs_at):
        self._source = source
        self._left = hangs_at
        self.let_go = threading.Event()
        self.hangs = threading.Event()

    def __getattr__(self, name):
        return getattr(self._source, name)

    def read(self, timeout_s):
        self._left -= 1
        if self._left <= 0 or timeout_s == 0:
            self.hangs.set()
            self.let_go.wait()
        return self._source.read(timeout_s)


def test_a_camera_whose_read_hangs_stops_no_other(make, spec):
    hanging = HangingSource(live(spec, "hanging", fps=200), hangs_at=100)
    parts, _ = make([hanging, live(spec, "well", fps=200)], max_batch=1, extra_s=0.01)
    stop = threading.Event()
    running = threading.Thread(target=lambda: Service(parts).run(stop), daemon=True)
    running.start()
    try:
        assert hanging.hangs.wait(30)
        before = parts.counters.of_stream(StreamId("well")).inferred

        def has_got_on():
            return parts.counters.of_stream(StreamId("well")).inferred > before + 20

        wait_until(has_got_on, what="the other camera goes on")
    finally:
        hanging.let_go.set()
        stop.set()
        running.join(30)
    assert not running.is_alive()


def test_a_frame_that_cannot_be_copied_ends_its_stream_alone(make, spec):
    class TornSource(RecordedSource):
        def read(self, timeout_s):
            frame = super().read(timeout_s)
            is_torn = frame is not None and frame.header.frame == 3
            return dataclasses.replace(frame, image=frame.image[:-1]) if is_torn else frame

    torn = TornSource(StreamId("torn"), pictures(20), preprocess=spec.preprocess)
    parts, _ = make([torn, recorded(spec, "well", pictures(40))])

    report = Service(parts).run(threading.Event())

    assert by_name(report)["well"].inferred == 40
    assert by_name(report)["torn"].inferred == 2
    assert by_name(report)["torn"].dropped == {DropReason.FAILED: 1}
    assert report.is_balanced
    assert "broadcast" in report.statuses["torn"].reason


def test_live_streams_on_a_slow_engine_drop_the_older_frames_and_stay_fresh(make, spec):
    parts, results = make([live(spec, name, fps=100) for name in ("a", "b")], extra_s=0.05)

    report = Service(parts).run(threading.Event(), duration_s=2)

    assert report.is_balanced
    for stream in report.streams:
        assert sum(stream.dropped.values()) > 2 * stream.inferred  # 100 fps came, about 20 were inferred
        assert stream.inferred > 10
    # A frame waits for the batch in front of it and for its own; in a queue, the median would be most of a second. That
    # no frame ever waits longer is shown where no busy machine can disturb it: in test_batcher_traces.py.
    assert report.stages_ms["total"]["p50"] < 250
    for name in ("a", "b"):
        frames = [one.header.frame for one in results if one.header.stream == name]
        assert frames == sorted(frames)


def test_a_slow_engine_is_told_of_in_the_states_of_device_and_streams(make, spec, monkeypatch, tmp_path):
    monkeypatch.setattr(overload, "_WINDOW_S", 0.1)
    parts, _ = make([live(spec, name, fps=100) for name in ("a", "b")], extra_s=0.05)
    stop = threading.Event()
    running = threading.Thread(
        target=serve_pipeline, args=(parts, Heartbeat(Notifier({}), path=None), stop), daemon=True
    )
    running.start()
    parts.states.change(StreamStatus(stream=StreamId("a"), state=StreamState.UP, reason="frames arrive", reconnects=0))

    def words_of_stream():
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        return [(one["state"], one["reason"]) for one in lines if one["schema"] == "edge.stream-state/1"]

    try:
        wait_until(lambda: parts.states.device_state[0] == "degraded", what="it is told")
        assert "cannot keep up" in parts.states.device_state[1]
        wait_until(lambda: words_of_stream()[-1][0] == "degraded", what="the stream says so, too")
        assert words_of_stream()[0] == ("up", None)
        assert words_of_stream()[-1][1].startswith("overload: ")
    finally:
        stop.set()
        running.join(60)


def test_an_engine_that_fails_ends_the_run_and_the_counts_still_balance(make, spec):
    source = recorded(spec, "a", itertools.repeat(PICTURE))
    parts, results = make([source], max_batch=1, fails_at=3)

    accounts = []
    with pytest.raises(EngineError, match="the device is gone"):
        Service(parts).run(threading.Event(), on_end=accounts.append)

    assert [(one.is_balanced, one.inferred) for one in accounts] == [(True, 2)]
    counted = parts.counters.of_stream(StreamId("a"))
    assert counted.inferred == len(results) == 2
    assert counted.dropped[DropReason.FAILED] == 1
    assert source.counts().decoded == counted.inferred + sum(counted.dropped.values())


def test_the_report_has_stable_keys(make, spec):
    parts, _ = make([recorded(spec, "a", pictures(3))])
    started = time.monotonic()

    content = Service(parts).run(threading.Event()).as_json()

    assert set(content) == {
        "pipeline", "engine", "precision", "seconds", "inferred", "fps", "cpu_seconds", "cpu_ms_per_frame",
        "peak_memory_bytes", "streams", "stages_ms", "batch_sizes", "published", "balanced",
    }  # fmt: skip
    assert set(content["streams"][0]) == {
        "id", "state", "reason", "reconnects", "decoded", "inferred", "dropped", "unaccounted", "decode_errors",
        "detections", "fps", "skipped",
    }  # fmt: skip
    assert 0 < content["seconds"] <= time.monotonic() - started


@pytest.mark.parametrize("is_erased", [True, False], ids=["all 0", "low"])
def test_scores_that_are_all_exactly_0_are_told_once(make, spec, tmp_path, monkeypatch, caplog, is_erased):
    """One scale for boxes and scores; without it the model finds nothing either, its scores are below the threshold."""
    if is_erased:
        model = onnx.load(spec.path)
        with_joint_scale(model)
        onnx.save(model, tmp_path / "erased.onnx")
        spec = inspect_model(tmp_path / "erased.onnx")
    monkeypatch.setattr("edge.runtime.pipeline.loop._SILENT_FRAMES", 40)
    parts, results = make([recorded(spec, "a", pictures(200))], model=spec, score_threshold=1.0)

    with caplog.at_level(logging.WARNING, logger="edge.runtime.pipeline.loop"):
        Service(parts).run(threading.Event())

    assert len(results) == 200
    assert not any(len(one.detections) for one in results)
    told = [one.getMessage() for one in caplog.records if "every score is exactly 0" in one.getMessage()]
    assert len(told) == (1 if is_erased else 0)
