"""`edge-runtime run` as a user starts it: real clips, GStreamer, engine, broker and subscriber, in its own process."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import av
import cv2
import pytest

from tests.support.clips import write_clip
from tests.support.command_line import command
from tests.support.mosquitto import Mosquitto
from tests.support.own_disk import OwnDisk
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(reason="further services over real models: the first row of each test is quick")
STATE_OF_STREAM = "/streams/{}/state"


def stream(stats, name):
    return next(one for one in stats["streams"] if one["id"] == name)


def test_three_files_at_once_each_frame_once(run, clip, tmp_path):
    portrait = write_clip(tmp_path / "portrait.mp4", count=45, width=180, height=320)
    odd = write_clip(tmp_path / "odd.mp4", count=37, width=854, height=480)

    stats, _ = run.complete(
        [{"id": "a", "uri": str(clip)}, {"id": "b", "uri": str(portrait)}, {"id": "c", "uri": str(odd)}]
    )

    assert stats["balanced"]
    assert sorted(run.numbers()) == sorted(
        [("a", i) for i in range(1, 61)] + [("b", i) for i in range(1, 46)] + [("c", i) for i in range(1, 38)]
    )
    assert {one["state"] for one in stats["streams"]} == {"ended"}


def test_a_stream_has_ended_when_all_that_was_found_in_it_is_told(run, clip, tmp_path, broker, subscribe):
    """Frames are inferred in batches and wait for a broker: the end of the file is known long before."""
    collector = subscribe(broker.port)
    short = write_clip(tmp_path / "short.mp4", count=9)
    streams = [{"id": "a", "uri": str(clip)}, {"id": "b", "uri": str(short)}]
    batch = {"max_frames": 4, "max_wait_ms": 200}
    run.complete(streams, broker_port=broker.port, batch=batch)

    for name, last in (("a", 60), ("b", 9)):
        of_stream = [message for message in collector.messages if f"/streams/{name}/" in message.topic]
        told = [(message.topic.rsplit("/", 1)[1], json.loads(message.payload)) for message in of_stream]
        end = next(at for at, (kind, content) in enumerate(told) if (kind, content.get("state")) == ("state", "ended"))
        before = [content["seq"] for kind, content in told[:end] if kind == "detections"]
        assert before == list(range(1, last + 1))
        assert [content["state"] for kind, content in told[end:] if kind == "state"] == ["ended", "down"]

    late = subscribe(broker.port)  # what a dashboard finds that was not there before
    wait_until(lambda: len(late.payloads("/counts")) == 2, what="the counts are retained")
    assert {(one["stream"], one["state"], one["total"]) for one in late.payloads("/counts")} == {
        ("a", "stopped", None),
        ("b", "stopped", None),
    }
    assert collector.payloads("a/counts")[0]["state"] == "counting"

    run.complete(streams, batch=batch)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for name in ("a", "b"):
        told = [one.get("state", "frame") for one in lines if one.get("stream") == name]
        assert told.index("ended") > max(at for at, what in enumerate(told) if what == "frame")


def test_its_threads_share_two_arenas_of_memory(run, clip, monkeypatch):
    """Each thread would have one of its own, and the threads of cameras come and go."""
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    streams = [{"id": f"s-{i}", "uri": str(clip), "loop": True, "realtime": True} for i in range(4)]
    process = run.start(run.write(streams), "-v")
    out = run.folder / "out.jsonl"
    wait_until(lambda: out.exists() and out.stat().st_size > 100_000, what="all streams run")

    arenas = secondary_arenas(process.pid)
    run.stop(process)

    assert arenas <= 1


def secondary_arenas(pid):
    """Count glibc's: each is 64 MiB at a multiple of that, of which the first part is in use."""
    size, places = 64 << 20, []
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        place, rights = line.split()[:2]
        begin, end = (int(one, 16) for one in place.split("-"))
        places.append((begin, end, rights))
    return sum(
        used[0] % size == 0 and used[2] == "rw-p" and (left[1] - used[0], left[2]) == (size, "---p")
        for used, left in itertools.pairwise(places)
    )


def test_sizes_are_those_of_the_source(run, tmp_path):
    write_clip(tmp_path / "odd.mkv", count=3, width=852, height=480)
    write_clip(tmp_path / "one.mp4", count=1)

    run.complete([{"id": "odd", "uri": "odd.mkv"}, {"id": "one", "uri": "one.mp4"}])

    sizes = {one["stream"]: one["size"] for one in run.messages()}
    assert sizes == {"odd": [852, 480], "one": [320, 180]}


@pytest.mark.parametrize(
    ("damage", "state", "exit_code"),
    [
        (lambda data: b"", "down", 3),
        (lambda data: b"this is no video" * 100, "down", 3),
        (lambda data: data[: len(data) // 3], "down", 3),  # an MP4 has its index at its end
    ],
    ids=["empty", "no-video", "truncated"],
)
def test_a_file_that_cannot_be_read_leaves_the_others_alone(run, clip, tmp_path, damage, state, exit_code):
    (tmp_path / "bad.mp4").write_bytes(damage(clip.read_bytes()))

    stats, told = run.complete([{"id": "bad", "uri": "bad.mp4"}, {"id": "good", "uri": str(clip)}], expected=exit_code)

    assert stream(stats, "good")["inferred"] == 60
    assert stream(stats, "bad")["state"] == state
    assert "bad.mp4" in told
    assert stats["balanced"]


def test_max_fps_and_classes(run, clip):
    stats, _ = run.complete([{"id": "a", "uri": str(clip), "max_fps": 10, "classes": ["class-1"]}])

    assert stream(stats, "a")["dropped"]["max_fps"] == 40
    assert stream(stats, "a")["inferred"] == 20
    assert {found["label"] for one in run.messages() for found in one["detections"]} <= {"class-1"}


def test_an_unknown_class_is_refused_with_the_labels_there_are(run, clip):
    stats, told = run.complete([{"id": "a", "uri": str(clip), "classes": ["unicorn"]}], expected=2)

    assert stats is None
    assert "streams[0].classes: got 'unicorn', the labels of the model are class-0, class-1, class-2" in told


def test_sigterm_drains_and_says_offline(run, clip, broker, subscribe):
    collector = subscribe(broker.port)
    path = run.write([{"id": "a", "uri": str(clip), "loop": True, "realtime": True}], broker_port=broker.port)
    process = run.start(path)
    wait_until(lambda: len(collector.payloads("/detections")) >= 10, what="ten messages")

    stats, _ = run.stop(process)
    wait_until(lambda: collector.payloads("/dev/state")[-1]["state"] == "offline", what="offline")
    assert stats["balanced"]
    states = [one["state"] for one in collector.payloads("/dev/state")]
    assert states[0] == "online"
    assert states[-2:] == ["stopping", "offline"]
    assert collector.payloads("/streams/a/state")[-1]["state"] in ("down", "ended")
    assert collector.numbers()["a"] == list(range(1, stats["streams"][0]["inferred"] + 1))


def test_ctrl_c_ends_a_run_with_its_account_and_130(run, clip, tmp_path):
    """A service is stopped by SIGTERM, and is no failure then: see above."""
    process = run.start(run.write([{"id": "a", "uri": str(clip), "loop": True, "realtime": True}]))
    out = tmp_path / "out.jsonl"
    wait_until(lambda: out.exists() and "edge.detections/1" in out.read_text(), what="frames")
    process.send_signal(signal.SIGINT)
    stats, told = run.finish(process, expected=130)

    assert stats["balanced"]
    assert told.splitlines()[-2:] == ["the counts balance", "interrupted"]


def test_a_second_interrupt_ends_the_process_at_once(run, clip, tmp_path):
    path = run.write([{"id": "a", "uri": str(clip), "loop": True}])
    process = run.start(path)
    wait_until(lambda: (tmp_path / "out.jsonl").exists(), what="messages")
    process.send_signal(signal.SIGSTOP)  # so that both arrive
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    told = run.told()

    assert process.returncode in (0, 130), told
    assert "terminate called" not in told


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--annotate", "/dev/null/x"), "no folder for frames"),
        (("--stats", "/nowhere/stats.json"), "--stats /nowhere/stats.json: "),
        (("--health", "/nowhere/health"), "--health /nowhere/health: "),
    ],
)
def test_what_cannot_be_written_is_found_out_before_the_run(run, clip, options, expected):
    process = run.start(run.write([{"id": "a", "uri": str(clip), "loop": True}]), *options)

    _, told = run.finish(process, expected=2)

    assert expected in told


def test_without_a_broker_it_runs_and_publishes_once_there_is_one(run, clip, subscribe, tmp_path):
    broker = Mosquitto(tmp_path / "late")
    path = run.write([{"id": "a", "uri": str(clip), "loop": True, "realtime": True}], broker_port=broker.port)
    process = run.start(path)
    with contextlib.ExitStack() as stack:
        wait_until(lambda: (tmp_path / "state").exists(), what="the run has begun")
        stack.enter_context(broker)
        collector = subscribe(broker.port)
        wait_until(lambda: len(collector.numbers()["a"]) >= 10, what="messages arrive")
        stats, _ = run.stop(process)
        wait_until(lambda: collector.payloads("/dev/state")[-1]["state"] == "offline", what="offline")
        assert stats["balanced"]
        last = max(collector.numbers()["a"])
        assert collector.undeclared("a", last) == set()


def test_a_broker_that_goes_and_comes_back_loses_nothing(run, clip, tmp_path, subscribe, request):
    # It keeps its sessions: what reaches it before its subscriber is back must not be its loss.
    broker = Mosquitto(tmp_path / "mosquitto", is_persistent=True).start()
    request.addfinalizer(broker.stop)
    collector = subscribe(broker.port)
    path = run.write([{"id": "a", "uri": str(clip), "loop": True, "realtime": True}], broker_port=broker.port)
    process = run.start(path)
    wait_until(lambda: len(collector.numbers()["a"]) >= 10, what="first messages")
    for _ in range(2):
        broker.stop()
        broker.start()
        seen = max(collector.numbers()["a"])
        wait_until(lambda seen=seen: max(collector.numbers()["a"]) > seen + 10, what="messages again")

    stats, _ = run.stop(process)
    last = stats["streams"][0]["inferred"]
    wait_until(lambda: last in collector.numbers()["a"], what="the last message")
    assert collector.undeclared("a", last) == set()


def test_a_damaged_model_is_refused(run, model, clip, tmp_path):
    whole = Path(model).read_bytes()
    (tmp_path / "tiny.onnx").write_bytes(whole[: len(whole) // 2])

    stats, told = run.complete([{"id": "a", "uri": str(clip)}], expected=2, model={"onnx": "tiny.onnx"})

    assert stats is None
    assert told.startswith("error: ")
    assert "tiny.onnx" in told


def test_annotated_frames_on_a_full_disk_do_not_end_the_run(run, clip, tmp_path):
    disk = OwnDisk(tmp_path / "look", tmp_path / "disk.img")
    try:
        disk.fill()
        stats, told = run.complete(
            [{"id": "a", "uri": str(clip)}], "--annotate", str(tmp_path / "look"), "--annotate-every", "0.1", expected=3
        )

        assert stats["streams"][0]["inferred"] == 60
        assert told.count("pictures cannot be written, the run goes on without") == 1
        assert "No space left on device" in told
        assert "the counts balance" in told
        assert [path.name for path in (tmp_path / "look").iterdir()] == ["ballast"]
    finally:
        disk.close()


def test_frames_are_written_as_the_model_sees_them(run, clip, tmp_path):
    boxed, plain = tmp_path / "look", tmp_path / "frames"
    _, told = run.complete(
        [{"id": "a", "uri": str(clip)}], "--frames", str(plain), "--annotate", str(boxed), "--annotate-every", "0.5"
    )

    assert f"frames with boxes: {boxed} (4 pictures)\nframes as they are: {plain} (4 pictures)\n" in told
    names = [f"a-{frame:06d}.jpg" for frame in (1, 16, 31, 46)]
    assert [sorted(path.name for path in folder.iterdir()) for folder in (boxed, plain)] == [names] * 2
    with av.open(str(clip)) as container:
        decoded = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    for name, number in zip(names, (0, 15, 30, 45), strict=True):
        picture = cv2.imread(str(plain / name))
        height, width = picture.shape[:2]
        expected = cv2.resize(decoded[number], (width, height)).astype(int)
        assert width / height == pytest.approx(decoded[number].shape[1] / decoded[number].shape[0], rel=0.02)
        assert abs(picture - expected).mean() < 4, name


@pytest.mark.slow(reason="two runs")
def test_pictures_of_an_earlier_run_stay_and_are_not_counted(run, clip, tmp_path):
    asked = ([{"id": "a", "uri": str(clip)}], "--annotate", str(tmp_path / "look"))
    run.complete(*asked)
    before = {path.name: path.read_bytes() for path in (tmp_path / "look").iterdir()}

    _, told = run.complete(*asked)

    assert f"frames with boxes: {tmp_path / 'look'} (2 pictures)" in told
    after = {path.name: path.read_bytes() for path in (tmp_path / "look").iterdir()}
    assert set(after) == {"a-000001.jpg", "a-000031.jpg", "a-000001-2.jpg", "a-000031-2.jpg"}
    assert before == {name: content for name, content in after.items() if name in before}


@pytest.mark.slow(reason="twelve seconds of a clip")
def test_a_clip_that_begins_again_leaves_each_frame_once(run, clip, tmp_path):
    plain = tmp_path / "plain"

    run.complete([{"id": "a", "uri": str(clip), "loop": True}], "--frames", str(plain), "--duration", "12")

    digests = [hashlib.sha256(path.read_bytes()).digest() for path in plain.iterdir()]
    assert len(digests) == len(set(digests)) > 0


@pytest.fixture
def terminal(monkeypatch):
    """A pseudo-terminal: ours, and that of the command; ours reads until the command has ended."""
    monkeypatch.setenv("TERM", "xterm")  # that of an editor or a job may be a dumb one, which shows lines
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)


def read_until_end(descriptor, shown=b""):
    with contextlib.suppress(OSError):  # the command has closed its own
        while more := os.read(descriptor, 4096):
            shown += more
    return shown


def test_a_terminal_shows_a_table_of_the_cameras_and_the_account_at_the_end(run, clip, terminal):
    path = run.write([{"id": "cam", "uri": str(clip), "realtime": True, "loop": True}])
    ours, theirs = terminal
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", str(path), "--duration", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"detections" not in shown:
            shown += os.read(ours, 4096)  # OSError where it has ended without a table
        process.send_signal(signal.SIGINT)
        shown = read_until_end(ours, shown)

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"camera +state +fps +frames +detections", text)
    assert "the counts balance" in shown.decode().rpartition("\x1b[1A")[2]  # or the table's end takes it away
    assert process.returncode == 130


def test_json_lines_go_into_a_pipe_and_not_to_a_terminal(run, clip, terminal):
    path = run.write([{"id": "cam", "uri": str(clip)}], publish={"jsonl": "-"})
    ours, theirs = terminal
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", str(path)]

    piped = subprocess.run(command, capture_output=True, check=True, timeout=120)
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        _, told = process.communicate(timeout=120)

    assert piped.stdout.count(b'"schema":"edge.detections/1"') > 0
    assert read_until_end(ours) == b""
    assert process.returncode == 0
    assert b"publish.jsonl" in told


@pytest.mark.slow(reason="further services over real models")
def test_a_benchmark_does_not_speak_as_the_device(run, clip, tmp_path, broker, subscribe):
    collector = subscribe(broker.port)
    publish = {"jsonl": str(tmp_path / "out.jsonl"), "mode": "all"}
    path = run.write([{"id": "a", "uri": str(clip), "loop": True}], broker_port=broker.port, publish=publish)

    done = command("edge-runtime", "bench", "--pipeline", path, "--duration", 1, "--json")

    published = json.loads(done.stdout)["pipeline"]["published"]
    assert collector.payloads("") == []
    assert list(published) == ["jsonl"]
    assert published["jsonl"]["delivered"] > 0
    assert not (tmp_path / "out.jsonl").exists()
    assert "dev" not in os.listdir(tmp_path / "state/edge-deploy")
