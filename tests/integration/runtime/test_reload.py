"""SIGHUP takes over the streams of the pipeline file; the others miss no frame, and a bad file changes nothing.

So it is in a storm, too: reloads one after the other on a busy machine with forty RTSP cameras.
"""

import json
import signal
from itertools import pairwise

import pytest

from tests.support import models
from tests.support.clips import write_clip
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.wait import busy, wait_until

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


def found(run, schema="edge.detections/1"):
    path, by_stream = run.folder / "out.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.endswith("}") and (one := json.loads(line))["schema"] == schema:
            by_stream.setdefault(one["stream"], []).append(one)
    return by_stream


def messages(run, name, *schema):
    return found(run, *schema).get(name, [])


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


FPS, UNTOUCHED, OTHERS, RELOADS = 5, 10, 30, 8
STALL_S = 10.0  # longer than a busy machine keeps forty cameras waiting; one that is begun anew has a reconnect


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    require_gstreamer("rtspsrc", "rtph264depay", "avdec_h264", server=True)
    folder = tmp_path_factory.mktemp("clips")
    long = write_clip(folder / "long.h264", count=10 * FPS, width=96, height=64, fps=FPS, gop=5 * FPS)
    short = write_clip(folder / "short.h264", count=2 * FPS, width=96, height=64, fps=FPS, gop=FPS)
    with RtspServer({f"/{clip.stem}": RtspMount(str(clip), "h264", fps=FPS) for clip in (long, short)}) as made:
        yield made


def streams(server, turn):
    """Return the streams of a turn: of the others a third comes and goes, and the rest is changed each time."""
    steady = [{"id": f"steady{i}", "uri": server.url("/long"), "stall_s": STALL_S} for i in range(UNTOUCHED)]
    others = [
        {"id": f"other{i}", "uri": server.url("/short"), "latency_ms": 100 + (turn if i % 3 else 0)}
        for i in range(OTHERS)
        if i % 3 or turn % 2 == 0
    ]
    return [*steady, *others]


def await_frames(run, names, count, what):
    before = {name: len(seen) for name, seen in found(run).items()}

    def have_come() -> bool:
        now = found(run)
        return all(len(now.get(name, ())) >= before.get(name, 0) + count for name in names)

    wait_until(have_come, what=what, timeout_s=120)


def test_cameras_that_are_not_touched_stay_up_and_whole_in_a_storm_of_reloads(run, server):
    process = run.start(run.write(streams(server, 0)), "-v")
    steady = [f"steady{i}" for i in range(UNTOUCHED)]
    await_frames(run, [*steady, *(f"other{i}" for i in range(OTHERS))], 2, "all cameras")
    begun = {name: found(run)[name][-1]["frame"] for name in steady}
    with busy(2):
        for turn in range(1, RELOADS + 1):
            run.write(streams(server, turn))
            process.send_signal(signal.SIGHUP)
            await_frames(run, steady, 2, "the cameras that are not touched")
            wait_until(lambda n=turn: run.told().count("streams reloaded") == n, what="a reload")
        await_frames(run, [one["id"] for one in streams(server, RELOADS)], 2, "all cameras after it")
    stats, told = run.stop(process)

    assert stats["balanced"], told
    account = {one["id"]: one for one in stats["streams"]}
    for name in steady:
        assert account[name]["reconnects"] == 0, told
        assert f"stream down stream={name} " not in told
        seen = [one for one in found(run)[name] if one["frame"] >= begun[name]]
        gaps_s = [(after["pts_us"] - before["pts_us"]) / 1e6 for before, after in pairwise(seen)]
        assert max(gaps_s) < STALL_S
        # Whatever is left out is decoded and let go for a fresher frame: nothing in front of a decoder is lost.
        damaged = account[name]["dropped"].get("damaged", 0)
        assert damaged <= begun[name], (damaged, begun[name])
    # A row is taken only for one that was missed: streams that begin take none from those that run.
    lost = {why: sum(one["dropped"].get(why, 0) for one in stats["streams"]) for why in ("yielded", "superseded")}
    assert lost["yielded"] <= lost["superseded"], lost
