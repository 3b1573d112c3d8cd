"""Both commands as a user types them: help, exit codes, JSON keys, and errors without a traceback."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.support import models
from tests.support.command_line import apart, command

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

ROOT = Path(__file__).parents[3]


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from edge.cli.edge_deploy import edge_deploy\n"
        "edge_deploy.main(['--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'cv2', 'openvino', 'onnx', 'gi', 'paho', 'av', 'rich', 'msgspec', 'yaml', 'amqtt'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_inspect_tells_what_a_model_is(tmp_path):
    path = models.yolox(tmp_path / "x.onnx", size=96, classes=3)

    content = json.loads(command("edge-deploy", "inspect", path, "--json").stdout)

    assert content["family"] == "yolox"
    assert content["input"]["size"] == [96, 96]
    assert content["classes"] == ["class-0", "class-1", "class-2"]
    assert content["preprocess"]["colour_order"] == "bgr"
    assert "family" in command("edge-deploy", "inspect", path).stdout


@pytest.fixture
def dataset(tmp_path):
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
    random = np.random.default_rng(0)
    for index in range(3):
        cv2.imwrite(str(tmp_path / "images" / f"{index}.png"), random.integers(0, 256, (60, 80, 3), np.uint8))
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 0.2 0.2\n2 0.3 0.3 0.1 0.1\n")
    (tmp_path / "labels" / "1.txt").write_text("")
    return tmp_path


def evaluate(dataset, *options, expected=0):
    model = models.yolov8(dataset / "a m.onnx", size=96, classes=3)
    places = ("--images", dataset / "images", "--labels", dataset / "labels")
    return command("edge-deploy", "evaluate", model, *places, *options, expected=expected)


def test_evaluate_gives_the_stable_keys(dataset):
    content = json.loads(evaluate(dataset, "--json").stdout)

    assert {"model", "precision", "images", "map50_95", "map50"} <= set(content)
    assert (content["images"], content["boxes"], content["unlabelled"]) == (3, 2, 1)
    assert content["precision"] == "fp32"


def test_what_is_no_image_in_a_folder_of_images_is_counted(dataset):
    images = dataset / "images"
    (images / "sub").mkdir()
    for name in ("notes.txt", "more.txt", "night.heic", "LICENSE", ".DS_Store"):
        (images / name).write_text("")

    said = evaluate(dataset, "--json")

    counted = "1 .heic, 2 .txt, 1 folder, 1 without suffix"
    assert f"{images}: 5 that are no images by name are passed over ({counted})" in said.stderr
    assert "passed over" not in said.stdout


def test_evaluate_refuses_two_images_of_one_name(dataset):
    (dataset / "images" / "0.jpg").write_bytes((dataset / "images" / "0.png").read_bytes())

    assert "0.jpg and 0.png" in evaluate(dataset, expected=2).stderr


def test_evaluate_in_int8_says_what_is_missing(dataset):
    told = evaluate(dataset, "--precision", "int8", expected=2).stderr

    assert "is a float model, and INT8 without a calibration table is never run; name one with --table" in told
    assert f"edge-deploy calibrate '{dataset / 'a m.onnx'}'" in told


def test_doctor_names_what_is_here():
    content = json.loads(command("edge-deploy", "doctor", "--json").stdout)

    assert content["openvino"]["here"]
    assert content["gstreamer"]["here"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have no such instruction")
def test_doctor_says_where_int8_sums_saturate(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    found = json.loads(apart("edge-runtime", "doctor", "--json").stdout)["int8 on the CPU"]

    assert not found["here"]
    assert "computed in float" in found["detail"]


def test_listen_says_what_a_pipeline_file_would_leave_unread():
    words = ("listen", "gates.yaml", "--site", "north", "--no-tls", "--client-id", "me")

    told = command("edge-deploy", *words, expected=2).stderr

    assert "--site, --tls: only with --host" in told
    assert "--client-id" not in told


def test_listen_says_that_there_is_no_broker():
    told = command("edge-deploy", "listen", "--host", "127.0.0.1", "--port", "1", "--no-tls", expected=3).stderr

    assert told.startswith("error: ")


def test_a_service_under_systemd_exits_with_78_for_its_configuration(monkeypatch):
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)

    command("edge-runtime", "run", "--pipeline", "absent.yaml", expected=78)


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("credential: absent", "p.yaml:3: streams[0].credential: credential 'absent' is not here"),
        ("decoder: nvmm", "decoder nvmm needs GStreamer's"),
    ],
)
def test_a_service_under_systemd_exits_with_69_for_what_the_machine_lacks(tmp_path, monkeypatch, stream, says):
    models.yolov8(tmp_path / "m.onnx")
    (tmp_path / "p.yaml").write_text(
        f"version: 1\nmodel: {{onnx: m.onnx}}\nstreams: [{{id: a, uri: 'rtsp://127.0.0.1:9/x', {stream}}}]\n"
        "publish: {jsonl: out.jsonl}\n"
    )
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)

    told = command("edge-runtime", "run", "--pipeline", tmp_path / "p.yaml", expected=69).stderr

    assert says in told


@pytest.mark.slow(reason="measures for some seconds")
def test_bench_gives_its_three_measurements(tmp_path):
    from tests.support.clips import write_clip

    write_clip(tmp_path / "clip.mp4", count=30)
    model = models.yolov8(tmp_path / "m.onnx")
    content = {
        "version": 1,
        "model": {"onnx": model.name},
        "streams": [{"id": "a", "uri": "clip.mp4", "loop": True}],
        "publish": {"jsonl": "out.jsonl"},
    }
    (tmp_path / "p.yaml").write_text(json.dumps(content))

    shown = json.loads(
        command("edge-runtime", "bench", "--pipeline", tmp_path / "p.yaml", "--duration", "0.5", "--json").stdout
    )

    assert shown["engine"]["fps"] > 0
    assert shown["decode"]["fps"] > 0
    assert shown["pipeline"]["balanced"]
    assert shown["overhead"] > 0


def pressed_tab(line: str) -> list[str]:
    """Return what bash offers behind `line`, by the script that the command gives."""
    words = line.split(" ")
    name = words[0]
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    script = (
        f'eval "$({variable}=bash_source {name})"; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; '
        f"_{name.replace('-', '_')}_completion {name}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("edge-deploy cal", ["calibrate"]),
        ("edge-deploy roofline --mac", ["--machine"]),
        ("edge-deploy table q", ["qdq"]),
        ("edge-deploy calibrate --method m", ["mse", "minmax"]),
        ("edge-runtime ben", ["bench"]),
    ],
)
def test_what_was_begun_is_completed(line, offered):
    assert sorted(pressed_tab(line)) == sorted(offered)
