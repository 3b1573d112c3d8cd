"""The demo as a user runs it, and how it fails."""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from edge.calibrate.table import read_table
from edge.config.pipeline import load_pipeline
from edge.demo import show
from edge.demo.cameras import lay_out_cameras
from edge.demo.show import DemoHooks, calibrate_demo, find_problems
from tests.support.wait import wait_until
from tests.support.wheels import pip_installed, whole_wheel

pytestmark = pytest.mark.slow(reason="runs the demo whole, as test_pages_run does once in make test")

MODEL = Path(__file__).parents[3] / "edge" / "demo" / "model" / "traffic.onnx"


def demo(*options, **more):
    command = [sys.executable, "-m", "edge.cli.edge_deploy", "demo", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as a wheel installs it, away from the checkout: how to start Python there."""
    site = pip_installed(whole_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("site"))
    where = {"env": {**os.environ, "PYTHONPATH": str(site)}, "cwd": site.parent}
    told = subprocess.check_output([sys.executable, "-c", "import edge; print(edge.__file__)"], text=True, **where)
    assert Path(told.strip()).is_relative_to(site)
    return where


@pytest.fixture(scope="module")
def kept(installed, tmp_path_factory):
    """A folder that was kept, and the account of that run."""
    folder = tmp_path_factory.mktemp("demo")
    done = demo("--cameras", 2, "--seconds", 4, "--keep", folder, "--json", **installed)
    assert done.returncode == 0, done.stderr
    assert "running 2 cameras in INT8 with" in done.stderr
    return folder, json.loads(done.stdout)


def test_everything_that_is_inferred_arrives_and_objects_are_found(kept):
    folder, content = kept

    assert content["received"] == content["sent"] == content["run"]["inferred"] > 50
    assert content["run"]["balanced"]
    assert content["precision"] > 0.9
    assert content["recall"] > 0.7
    assert len(list((folder / "images").iterdir())) == len(list((folder / "labels").iterdir())) > 50


def test_int8_is_what_runs_and_is_proven(kept):
    folder, content = kept

    calibration = content["calibration"]
    proof = calibration["evidence"]
    table = read_table(folder / calibration["table"])
    assert content["run"]["precision"] == "int8"
    assert calibration["problem"] is None
    assert proof["metric"] == "mAP50-95"
    assert proof["int8"] >= proof["float"] - calibration["max_drop"] / 100
    assert proof["int8_mac_share"] > 0.95
    assert table.model is not None
    assert table.model.sha256 == hashlib.sha256(MODEL.read_bytes()).hexdigest()
    assert msgspec.to_builtins(table.evidence) == proof
    assert load_pipeline(folder / "demo.yaml").config.model.calibration == "traffic.calib.json"


def test_float_is_not_calibrated_and_no_table_of_an_earlier_demo_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    for name in ("demo.yaml", "traffic.calib.json"):
        (tmp_path / "kept" / name).touch()
    done = demo("--cameras", 1, "--seconds", 2, "--precision", "fp32", "--keep", tmp_path / "kept", "--json")

    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["received"] == content["sent"] > 0
    assert content["calibration"] is None
    assert content["run"]["precision"] == "fp32"
    assert (tmp_path / "kept" / "camera-1.mp4").exists()
    assert not (tmp_path / "kept" / "traffic.calib.json").exists()


def test_a_demo_of_fewer_cameras_than_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where it is remembered which streams there were

    for cameras in (2, 1):
        done = demo("--cameras", cameras, "--seconds", 4, "--precision", "fp32")
        assert done.returncode == 0, done.stderr
        assert "sent = received" in done.stdout


def test_without_int8_the_demo_goes_on_in_float_and_says_why(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "demo.yaml").touch()  # as an earlier demo's

    done = demo("--cameras", 1, "--seconds", 4, "--keep", tmp_path)

    assert done.returncode == 0, done.stderr
    assert f"kept in {tmp_path}: clips" in done.stdout
    assert "running 1 cameras in FP32 with" in done.stderr
    assert re.search(r"^FP32 +because INT8 failed .*broken\.jpg", done.stdout, re.MULTILINE)
    assert "sent = received" in done.stdout


def test_a_folder_of_other_files_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "yard.jpg").write_bytes(b"mine")

    refused = demo("--cameras", 1, "--keep", tmp_path)

    assert refused.returncode == 2
    assert f"{tmp_path}: no demo has made its images; name a new folder" in refused.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["images", "yard.jpg"]


class Run:
    """What the demo looks at in the account of a run."""

    def __init__(self, *, inferred=10, unaccounted=0, is_balanced=True):
        self.inferred = inferred
        self.is_balanced = is_balanced
        self.published = {"accepted": inferred}
        self.streams = [type("Stream", (), {"stream": "camera-1", "unaccounted": unaccounted})]


@pytest.mark.parametrize(
    ("run", "received", "expected"),
    [
        (Run(), 10, None),
        (Run(), 0, "the subscriber received nothing"),
        (Run(inferred=0), 0, "no frame was inferred in that time; on a busy machine give it more by --seconds"),
        (Run(), 9, "10 frames were published, 9 messages were received"),
        (Run(unaccounted=2), 10, "camera-1: 2 frames are unaccounted for"),
        (Run(is_balanced=False), 10, "the message counts do not balance"),
    ],
)
def test_what_does_not_balance_is_a_problem(run, received, expected):
    problems = find_problems(run, received)

    assert (problems == ()) == (expected is None)
    assert expected is None or any(expected in problem for problem in problems)


def test_a_promise_that_is_not_kept_leaves_no_table_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(show, "MAX_DROP", -100.0)
    lay_out_cameras(1, tmp_path)
    steps = []
    hooks = DemoHooks(
        on_stage=lambda text: None,
        on_work=lambda name, count: None,
        on_step=lambda: steps.append(1),
        on_tick=lambda report: None,
    )

    done = calibrate_demo(tmp_path, hooks)

    assert steps
    assert done.table is None
    assert done.evidence is None
    assert "INT8 loses" in done.problem
    assert not (tmp_path / "traffic.calib.json").exists()


@contextlib.contextmanager
def interrupted(folder, until, **settings):
    """A demo in a process of its own, which does what is told of; whoever asks interrupts it."""
    told, result = folder / "told.txt", folder / "result.txt"
    with told.open("w") as stream, result.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "edge.cli.edge_deploy", "demo", "--seconds", "60"],
            stdout=output, stderr=stream, **settings,
        )  # fmt: skip
    try:
        wait_until(lambda: until in told.read_text(), what=f"that it is {until}", timeout_s=120)
        yield process
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert told.read_text().splitlines()[-1] == "interrupted"


def test_ctrl_c_ends_the_preparations_of_the_demo(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with interrupted(tmp_path, "calibrating", env={**os.environ, "TMPDIR": str(temporary)}) as process:
        process.send_signal(signal.SIGINT)

    assert list(temporary.iterdir()) == []


def test_ctrl_c_of_a_terminal_while_the_cameras_run_loses_no_message(tmp_path):
    with interrupted(tmp_path, "running 4 cameras", start_new_session=True) as process:
        time.sleep(2.0)  # messages are on their way
        os.killpg(process.pid, signal.SIGINT)

    assert "counts          balance" in (tmp_path / "result.txt").read_text()
