"""`edge-deploy capacity` as a user types it."""

import json

import pytest

from tests.support import models
from tests.support.clips import write_clip
from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE


def capacity(*arguments, expected=0):
    return command("edge-deploy", "capacity", *arguments, expected=expected)


def pipeline(folder, *streams, model=f"{{onnx: {MODEL}}}", name="p.yaml"):
    text = f"version: 1\nmodel: {model}\npublish: {{jsonl: out.jsonl}}\nstreams:\n"
    path = folder / name
    path.write_text(text + "".join(f"  - {one}\n" for one in streams))
    return path


GONE = "{id: gone, uri: rtsp://127.0.0.1:9/none, max_fps: 10}"


def test_streams_are_looked_at_stated_or_assumed_and_each_says_which(tmp_path):
    write_clip(tmp_path / "c.mp4", count=40, width=320, height=180, fps=20)
    file = pipeline(tmp_path, "{id: clip, uri: c.mp4, realtime: true}", GONE, "{id: told, uri: 'test://'}")
    found = json.loads(
        capacity(file, "--stream", "told=1280x720@5/h265", "--assume", "640x360@12/h265", "--timeout", "3",
                 "--machine", "orin-nano-8gb", "--json").stdout
    )  # fmt: skip

    clip, gone, told = found["streams"]
    assert (clip["size"], clip["fps"], clip["codec"], clip["origin"]) == ([320, 180], 20.0, "h264", "seen")
    assert (gone["size"], gone["fps"], gone["wanted_fps"], gone["origin"]) == ([640, 360], 12.0, 10.0, "assumed")
    assert "127.0.0.1" in gone["why"]
    assert (told["size"], told["codec"], told["origin"], told["why"]) == ([1280, 720], "h265", "stated", None)
    assert found["wanted_fps"] == pytest.approx(20 + 10 + 5)
    assert found["machines"][0]["machine"] == "orin-nano-8gb"
    assert {one["resource"] for one in found["machines"][0]["resources"]} == {
        "GPU", "memory bandwidth", "memory", "decoder", "processor", "broker",
    }  # fmt: skip


def test_what_is_stated_of_a_stream_in_part_is_as_assumed_in_the_rest(tmp_path):
    streams = ("{id: size, uri: 'test://'}", "{id: rate, uri: 'test://'}", "{id: codec, uri: 'test://'}")
    stated = ("--stream", "size=1280x720", "--stream", "rate=1280x720@5", "--stream", "codec=1280x720/h264")

    def videos(*assumed):
        found = json.loads(capacity(pipeline(tmp_path, *streams), "--no-look", *stated, *assumed, "--json").stdout)
        return [(one["size"], one["fps"], one["codec"], one["origin"]) for one in found["streams"]]

    size, origin = [1280, 720], "stated"
    assert videos("--assume", "640x360@12/h265") == [
        (size, 12.0, "h265", origin), (size, 5.0, "h265", origin), (size, 12.0, "h264", origin),
    ]  # fmt: skip
    assert videos() == [(size, 30.0, "h264", origin), (size, 5.0, "h264", origin), (size, 30.0, "h264", origin)]


def test_one_machine_in_words(tmp_path):
    file = pipeline(tmp_path, GONE, model=f"{{onnx: {MODEL}, precision: int8, calibration: {TABLE}}}")
    shown = capacity(file, "--no-look", "--assume", "1920x1080@30/h265", "--machine", "orin-nano-8gb/15w").stdout
    paragraphs = shown.split("\n\n")

    assert paragraphs[0].splitlines()[0] == "traffic in INT8, 1 stream: 10 frames per second to infer, 30 to decode"
    assert "1920x1080@30/h265" in paragraphs[0]
    assert "not looked at" in paragraphs[0]
    assert paragraphs[1].startswith("Jetson Orin Nano 8 GB, 15W (orin-nano-8gb/15W), 15 W\n")
    assert "runs out first: decoder" in paragraphs[1]
    assert "such cameras: 7 with the headroom, never more than 11 with none" in paragraphs[1]
    assert "served with 30 % of each resource to spare" in paragraphs[1]
    assert paragraphs[2].startswith(
        "The smallest Jetson that serves this with 30 % to spare: Jetson Orin Nano 4 GB, 7W"
    )
    assert shown.splitlines()[-1].startswith("Verdict: orin-nano-8gb/15W: served with 30 %")


def test_the_verdict_on_several_machines_is_one_line(tmp_path):
    """Such cameras are beyond the smallest Jetson; of the A100 nothing typical is published."""
    machines = [word for name in ("orin-nano-4gb/7W_CPU", "a100-40gb") for word in ("--machine", name)]
    streams = [f"{{id: c{number}, uri: 'rtsp://x/{number}'}}" for number in range(30)]

    shown = capacity(pipeline(tmp_path, *streams), "--no-look", "--assume", "1280x720@900/h264", *machines).stdout

    assert shown.splitlines()[-1] == "Verdict: beyond its bound: orin-nano-4gb/7W_CPU; not known: a100-40gb"


def test_a_pipeline_beyond_the_bound_is_told_so_with_what_would_fit(tmp_path):
    file = pipeline(tmp_path, *(f"{{id: c{number}, uri: 'rtsp://x/{number}'}}" for number in range(30)))
    shown = capacity(file, "--no-look", "--assume", "1280x720@900/h264", "--machine", "orin-nano-4gb/7W_CPU").stdout

    assert "cannot be served: beyond what the machine can do at most" in shown
    assert "never with more than max_fps" in shown
    assert "No Jetson of the table serves this with 30 % to spare." in shown


def test_every_module_is_judged_and_a_decoder_without_figures_is_told(tmp_path):
    lines = capacity(pipeline(tmp_path, GONE), "--no-look").stdout.splitlines()

    assert any(line.endswith("agx-orin-64gb") for line in lines)
    assert "its decoder is not counted" in lines[-1]  # of H.264 nothing is published


def test_bad_input_says_what_to_do(tmp_path):
    file = pipeline(tmp_path, GONE)

    def told(*arguments):
        return capacity(*arguments, "--no-look", expected=2).stderr

    assert "headroom 1: " in told(file, "--headroom", "1")
    assert "stream 'east': the pipeline has none of that name, it has gone" in told(file, "--stream", "east=640x360")
    assert "expected ID=WIDTHxHEIGHT" in told(file, "--stream", "640x360")
    assert "is stated twice" in told(file, "--stream", "gone=640x360", "--stream", "gone=640x360")
    of_96 = models.yolov8(tmp_path / "open.onnx", dynamic_size=True)  # it notes no size, and is none for 640 x 640
    assert "not a detector" in told(pipeline(tmp_path, GONE, model=f"{{onnx: {of_96}}}", name="open.yaml"))
    other = models.yolov8(tmp_path / "other.onnx")
    wrong = pipeline(
        tmp_path, GONE, model=f"{{onnx: {other}, precision: int8, calibration: {TABLE}}}", name="wrong.yaml"
    )
    assert "wrong.yaml:2: model.calibration: " in (words := told(wrong))
    assert str(TABLE) in words
