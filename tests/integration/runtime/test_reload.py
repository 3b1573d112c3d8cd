"""SIGHUP takes over the streams of the pipeline file; the others miss no frame, and a bad file changes nothing."""

import json
import signal

import pytest

from tests.support import models
from tests.support.clips import write_clip
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_streams_come_change_and_go_and_the_others_miss_no_frame", reason="further services over real models"
)
STEADY = {"id": "steady", "uri": "clip.mp4", "loop": True}  # not in real time: it waits for its reader, none is late


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.yolov8(tmp_path_factory.mktemp("models") / "m.onnx", size=64)


@pytest.fixture
def run(run, tmp_path):
    write_clip(tmp_path / "clip.mp4", count=60)
    write_clip(tmp_path / "other.mp4", count=30, width=640, height=360)
    return run


def other(**more):
    return {"id": "other", "uri": "other.mp4", "loop": True, "realtime": True, **more}


def messages(run, name, schema="edge.detections/1"):
    path = run.folder / "out.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [one for one in found if one["schema"] == schema and one["stream"] == name]


def await_more(run, name, what):
    before = len(messages(run, name))
    wait_until(lambda: len(messages(run, name)) > before + 5, what=what)


def reload(run, process, streams, **more):
    run.write(streams, **more)
    process.send_signal(signal.SIGHUP)


def test_streams_come_change_and_go_and_the_others_miss_no_frame(run):
    process = run.start(run.write([STEADY]), "-v")
    await_more(run, "steady", "the first stream")
    reload(run, process, [STEADY, other()])
    await_more(run, "other", "a stream that was added")
    reload(run, process, [STEADY, other(uri="clip.mp4", max_fps=10)])
    wait_until(lambda: messages(run, "other")[-1]["size"] == [320, 180], what="a stream that was changed")
    reload(run, process, [STEADY])
    wait_until(lambda: "stream removed stream=other" in run.told(), what="the end of a stream")
    await_more(run, "steady", "the stream that stays")
    stats, told = run.stop(process)

    numbers = [one["frame"] for one in messages(run, "steady")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [one["id"] for one in stats["streams"]] == ["steady"]
    assert stats["balanced"], told
    assert "stream removed stream=other" in told
    states = {name: [one["state"] for one in messages(run, name, "edge.counts/1")] for name in ("steady", "other")}
    assert (states["steady"][-1], "stopped" in states["other"]) == ("stopped", False), "it is told of no more"
    of_other = [one["seq"] for one in messages(run, "other")]
    assert of_other == list(range(1, len(of_other) + 1))


def test_counts_balance_over_all_sources_of_a_stream(run):
    process = run.start(run.write([STEADY, other()]))
    await_more(run, "other", "the stream")
    for max_fps in (20, 15):
        reload(run, process, [STEADY, other(max_fps=max_fps)])
        await_more(run, "other", "the changed stream")
    stats, told = run.stop(process)

    assert stats["balanced"], told
    assert next(one for one in stats["streams"] if one["id"] == "other")["inferred"] == len(messages(run, "other"))


@pytest.mark.parametrize(
    ("streams", "more", "expected"),
    [
        ([{"id": "steady", "uri": "no-such.mp4"}], {}, "no-such.mp4"),
        ([STEADY, STEADY], {}, "is already streams[0]"),
        ([{**STEADY, "classes": ["no-such-label"]}], {}, "no-such-label"),
        ([STEADY], {"batch": {"max_frames": 2}}, "batch: has changed; a reload takes over streams only"),
    ],
    ids=["no-file", "twice", "label", "other-section"],
)
def test_a_file_that_cannot_be_used_is_refused_and_all_goes_on(run, streams, more, expected):
    process = run.start(run.write([STEADY]))
    await_more(run, "steady", "the stream")
    reload(run, process, streams, **more)
    wait_until(lambda: "reload refused, all goes on as before" in run.told(), what="a refusal")
    await_more(run, "steady", "the stream, still")
    reload(run, process, [STEADY, other()])
    await_more(run, "other", "a good file after a bad one")
    stats, told = run.stop(process)

    assert expected in told
    numbers = [one["frame"] for one in messages(run, "steady")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert stats["balanced"]


def test_subscribers_see_which_streams_there_are(run, broker, subscribe):
    collector = subscribe(broker.port)
    process = run.start(run.write([STEADY, other()], broker_port=broker.port))
    wait_until(lambda: said(collector, "streams/other/state"), what="the state of a stream")
    reload(run, process, [STEADY], broker_port=broker.port)
    wait_until(lambda: said(collector, "streams/other/state")[-1] == b"", what="its end")
    wait_until(
        lambda: json.loads(said(collector, "dev/info")[-1])["streams"] == ["steady"], what="which streams there are"
    )
    run.stop(process)


def test_a_stream_that_is_followed_no_more_has_no_occupancy_any_more(run, broker, subscribe):
    collector = subscribe(broker.port)
    process = run.start(run.write([STEADY, other(tracking={})], broker_port=broker.port))
    wait_until(lambda: said(collector, "streams/other/occupancy"), what="its occupancy")
    reload(run, process, [STEADY, other()], broker_port=broker.port)
    wait_until(lambda: said(collector, "streams/other/occupancy")[-1] == b"", what="none")
    run.stop(process)


def said(collector, end):
    return [one.payload for one in collector.messages if one.topic.endswith(end)]
