"""`edge-runtime build` on a device in a folder: real models, a real worker, and workers that fail as real ones do."""

import dataclasses
import importlib.util
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from edge.bundle.manifest import GoldenLimits, decode_manifest
from edge.runtime.build.engine import answer_request
from edge.runtime.build.handover import Taken, proof_in, proof_of, take_over
from edge.runtime.build.request import ask as ask_for
from tests.support import command_line
from tests.support.deployable import deployable
from tests.support.device_releases import plan_of, serving
from tests.support.logged import logged
from tests.support.raised import code_of, error_of
from tests.support.runs import build_for_release, builder, engine_folders
from tests.support.wait import QuietWatch, wait_until

pytestmark = pytest.mark.slow_but(reason="further services over real models: the first row of each test is quick")
WIDE = GoldenLimits(min_recall=0.9, max_score_error=0.2)  # the tables of tiny random models are rough


def refusal(builder, release):
    error = error_of(build_for_release, builder, release)
    assert error.exit_code == 7
    return error


def test_an_engine_is_built_proven_and_attached(device, release):
    built = build_for_release(builder(device), release)

    assert (built.golden.passed, built.golden.found, built.reused) == (True, built.golden.expected, False)
    assert device.releases.engine_key(release) == built.key
    assert engine_folders(device) == [built.key]
    assert sorted(os.listdir(device.layout.engine(built.key))) == ["build.json", "golden.json", "model.plan"]
    record, plan = plan_of(device, built.key)
    assert record.inputs.key == built.key
    assert plan == (device.layout.release(release) / "model.onnx").read_bytes()


def test_an_engine_that_is_here_and_intact_is_used_again(device, release):
    first = build_for_release(builder(device), release)

    again = build_for_release(builder(device, "raise SystemExit(1)"), release)  # nobody is asked to work

    assert again.reused
    assert (again.key, again.golden) == (first.key, first.golden)


def test_a_release_with_other_golden_frames_has_to_pass_them_on_the_same_engine(device, release, tmp_path):
    first = build_for_release(builder(device), release)
    proof = proof_in(device, first.key)
    strict = deployable(device, tmp_path / "again", golden=GoldenLimits(min_iou=0.9), sequence=2)
    assert strict != release

    built = build_for_release(builder(device), strict)

    assert (built.key, built.reused) == (first.key, True)
    assert proof_in(device, built.key) == proof_of(decode_manifest(device.releases.manifest(strict))) != proof


def test_f15_a_damaged_plan_is_built_anew(device, release):
    key = build_for_release(builder(device), release).key
    plan = device.layout.engine(key) / "model.plan"
    plan.write_bytes(plan.read_bytes()[:-1] + b"\0")

    assert not build_for_release(builder(device), release).reused
    assert plan_of(device, key)


def test_f15_a_damaged_blob_is_found_before_anything_is_built(device, release):
    blob = device.layout.blob(device.releases.blobs(release)["golden/golden.json"])
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-2] + b"X\n")

    assert code_of(build_for_release, builder(device), release) == "device.release.damaged"
    assert engine_folders(device) == []


HALF = """
import json, sys, pathlib
folder = pathlib.Path(json.loads(sys.argv[1])["folder"])
(folder / "model.plan").write_bytes(b"half a plan")
(folder / "done.json").write_text(json.dumps({"plan_sha256": "0" * 64, "plan_bytes": 100, "seconds": 1.0}))
"""


@pytest.mark.parametrize(
    ("worker", "code"),
    [
        ("import os; os.abort()", "build.failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "build.failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "build.oom"),
        ("raise SystemExit(3)", "build.failed"),
        ("pass", "build.failed"),
        (HALF, "build.failed"),
    ],
    ids=["abort", "segfault", "oom-kill", "exit", "nothing-written", "truncated"],
)
def test_f19_a_build_that_dies_is_an_error_and_leaves_nothing(device, release, worker, code):
    old = serving(device, sequence=9)
    before = engine_folders(device)

    assert refusal(builder(device, worker), release).code == code

    assert engine_folders(device) == before
    assert device.releases.current() == old
    assert device.releases.engine_key(release) is None


NAP = f"3011.{os.getpid()}"  # found again among the processes of the machine
HANG = f"import subprocess, time; subprocess.Popen(['sleep', '{NAP}']); time.sleep(3011)"


def test_f19_a_build_that_hangs_ends_at_its_deadline_with_all_its_processes(device, release):
    watch = QuietWatch()

    assert refusal(builder(device, HANG, deadline_s=1.0), release).code == "build.timeout"

    assert watch.seconds() < 20
    assert engine_folders(device) == []
    wait_until(lambda: not sleepers(), what="what the builder has started is gone")


def sleepers():
    told = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if f"sleep {NAP}" in line and "python" not in line]


def test_a_build_that_is_told_to_stop_leaves_nothing(device, release):
    stop = threading.Event()
    stop.set()

    assert refusal(builder(device, HANG, stop=stop), release).code == "build.stopped"
    assert engine_folders(device) == []


def test_f20_a_corrupted_scale_is_refused_with_the_numbers_of_each_class(device, tmp_path):
    good = deployable(device, tmp_path / "good", precision="int8", golden=WIDE)
    bad = deployable(device, tmp_path / "bad", precision="int8", golden=WIDE, harm=0.02, sequence=2)
    assert build_for_release(builder(device), good).golden.passed
    before = engine_folders(device)

    error = refusal(builder(device), bad)

    assert error.code == "smoke.accuracy"
    per_class = error.evidence["per_class"]
    assert set(per_class) == {"class-0", "class-1"}
    assert sum(found for _, found, _ in per_class.values()) < error.evidence["expected"]
    assert engine_folders(device) == before
    assert device.releases.engine_key(bad) is None


def test_a_kind_that_is_not_to_be_had_is_named(device, tmp_path):
    release = deployable(device, tmp_path / "source", pipeline={"engine": {"kind": "tensorflow"}})

    assert refusal(builder(device), release).code == "build.failed"


def test_a_kind_that_cannot_run_here_is_named_with_what_is_missing(device, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "openvino" else find(name))
    release = deployable(device, tmp_path / "source", pipeline={"engine": {"kind": "openvino"}})

    error = error_of(build_for_release, builder(device), release)
    assert error.code == "build.kind"
    assert re.search(r"openvino cannot run here: .*pip install openvino", str(error))


def fallback(**more):
    return {
        "pipeline": {"model": {"onnx": "model.onnx", "precision": "int8", "calibration": "model.calib.json", **more}}
    }


def report_of(device, key):
    return json.loads((device.layout.engine(key) / "build.json").read_text())


def test_int8_that_fails_its_golden_frames_gives_way_to_the_fallback(device, tmp_path):
    how = {"precision": "int8", "golden": WIDE, "harm": 0.02, **fallback(fallback="fp16")}
    release = deployable(device, tmp_path / "source", **how)

    built = build_for_release(builder(device), release)

    said = report_of(device, built.key)
    # Where this CPU has no fp16, what is more exact takes its place.
    assert said["precision"] == said["report"]["fallback"]["taken"] == built.precision
    assert said["precision"] in ("fp16", "fp32")
    assert said["inputs"]["precision"] == "int8"
    assert said["key"] == built.key
    assert said["report"]["fallback"]["reason"].startswith("int8 ")
    assert built.golden.passed
    assert "instead of int8" in built.engine
    assert plan_of(device, built.key)[1] == (device.layout.release(release) / "model.onnx").read_bytes()
    assert build_for_release(builder(device, "raise SystemExit(1)"), release).reused


def test_int8_that_is_good_is_held_against_the_fallback_and_both_times_are_kept(device, tmp_path):
    release = deployable(device, tmp_path / "a", precision="int8", golden=WIDE, **fallback(fallback="fp32"))

    built = build_for_release(builder(device), release)

    told = built.report["fallback"]
    assert told["int8_ms"] > 0
    assert told["fp32_ms"] > 0
    assert (built.precision == "int8") == (told["ratio"] < 1) == (told["taken"] is None)


def test_with_a_fallback_other_golden_frames_are_another_engine(device, tmp_path):
    first = deployable(device, tmp_path / "a", precision="int8", golden=WIDE, **fallback(fallback="fp32"))
    other = dataclasses.replace(WIDE, min_iou=0.45)
    second = deployable(device, tmp_path / "b", precision="int8", golden=other, sequence=2, **fallback(fallback="fp32"))

    keys = {build_for_release(builder(device), one).key for one in (first, second)}

    assert len(keys) == 2


UNLOADABLE = """
import json, sys, pathlib, hashlib
folder = pathlib.Path(json.loads(sys.argv[1])["folder"])
(folder / "model.plan").write_bytes(b"of another device")
digest = hashlib.sha256(b"of another device").hexdigest()
told = {"plan_sha256": digest, "plan_bytes": 17, "seconds": 1.0, "precision": "fp32", "report": {}}
(folder / "done.json").write_text(json.dumps(told))
numbers = {"passed": True, "images": 1, "expected": 1, "found": 1, "extra": 0, "score_error": 0.0}
(folder / "golden.json").write_text(json.dumps(numbers))
"""


def test_a_plan_that_cannot_be_loaded_any_more_is_named_and_built_anew(device, release, tmp_path, caplog):
    key = build_for_release(builder(device, UNLOADABLE), release).key
    again = deployable(device, tmp_path / "again", golden=GoldenLimits(min_iou=0.4), sequence=2)

    built = build_for_release(builder(device), again)

    assert (built.key, built.reused) == (key, False)
    assert f"engine-built-anew key={key[:12]} reason=the engine cannot be loaded" in logged(caplog)
    assert plan_of(device, key)[1] == (device.layout.release(release) / "model.onnx").read_bytes()


def test_the_builder_says_how_far_it_is_while_it_works_and_leaves_nothing(device, release, caplog):
    slow = (
        "import json, sys, pathlib, time\n"
        "from edge.runtime.build.request import ProgressFile\n"
        "from edge.runtime.build.worker import main\n"
        "from edge.types import Precision\n"
        "folder = pathlib.Path(json.loads(sys.argv[1])['folder'])\n"
        "ProgressFile(folder).of(Precision.INT8)('tactics', 0.5)\n"
        "sys.stdin.read()\n"
        "time.sleep(0.3)\n"  # of a compiler at work
        "sys.exit(main(sys.argv[1]))"
    )

    with caplog.at_level(logging.INFO):
        build_for_release(builder(device, slow), release)

    assert "build int8 tactics 50%" in caplog.text
    assert not device.layout.build_progress.exists()


def test_the_key_depends_on_everything_that_the_plan_depends_on(device, release, tmp_path):
    inputs = plan_of(device, build_for_release(builder(device), release).key)[0].inputs
    changes = {
        "onnx_sha256": "1" * 64,
        "calibration_sha256": "1" * 64,
        "kind": "tensorrt",
        "precision": "int8",
        "max_batch": 7,
        "input_size": (128, 96),
        "preprocess_sha256": "1" * 64,
        "options": {"threads": 3},
        "versions": {"openvino": "1.0"},
        "fallback": "fp16",
        "proof": "1" * 16,
    }
    assert set(changes) == {one.name for one in dataclasses.fields(inputs)}

    inputs = dataclasses.replace(inputs, fallback="fp32")  # without one there is nothing that golden frames decide

    keys = {dataclasses.replace(inputs, **{name: value}).key for name, value in changes.items()}

    assert len(keys | {inputs.key}) == len(changes) + 1


def ask(device, release):
    ask_for(device, release)
    return device.layout.build_request


def test_a_request_is_answered_and_the_answer_is_taken_over(device, release):
    request = ask(device, release)
    device.layout.build_result.write_text("of an earlier build")

    answer_request(builder(device), request)
    assert engine_folders(device) == []  # the builder writes nothing but its own folder
    assert take_over(device) is Taken.ANSWER

    result = json.loads(device.layout.build_result.read_text())
    assert (result["release"], result["problem"], result["key"]) == (release, None, device.releases.engine_key(release))
    assert result["golden"]["passed"]
    assert plan_of(device, result["key"])[1] == (device.layout.release(release) / "model.onnx").read_bytes()
    assert not request.exists()
    assert take_over(device) is Taken.NOTHING


def test_a_request_for_an_engine_that_is_here_proves_it_on_the_other_frames(device, release, tmp_path):
    key = build_for_release(builder(device), release).key
    other = deployable(device, tmp_path / "other", golden=GoldenLimits(min_iou=0.9), sequence=2)

    answer_request(builder(device), ask(device, other))
    take_over(device)

    result = json.loads(device.layout.build_result.read_text())
    assert (result["key"], result["reused"], result["golden"]["passed"]) == (key, True, True)
    assert device.releases.engine_key(other) == key
    proven = json.loads((device.layout.engine(key) / "golden.json").read_text())
    assert {**result["golden"], "proof": proven["proof"]} == proven


def test_a_request_that_was_answered_is_not_built_again_and_another_one_is(device, release):
    request = ask(device, release)
    answer_request(builder(device), request)

    assert answer_request(builder(device, "raise SystemExit(1)"), request) is None
    ask(device, release)
    assert take_over(device) is Taken.OTHER
    assert answer_request(builder(device), request) is not None


def test_a_request_that_fails_is_answered_with_code_and_evidence(device, release):
    request = ask(device, release)

    error_of(answer_request, builder(device, "import os; os.abort()"), request)
    take_over(device)

    result = json.loads(device.layout.build_result.read_text())
    assert (result["key"], result["problem"]["code"]) == (None, "build.failed")
    assert "SIGABRT" in result["problem"]["problem"]


def command(*arguments, root, expected):
    return command_line.command("edge-runtime", "build", *arguments, "--root", root, expected=expected)


def test_the_command_answers_a_request_and_then_has_nothing_to_do(device, release):
    request = ask(device, release)

    assert "sure detections found again" in command("--request", request, root=device.layout.root, expected=0).stdout
    assert "nothing was asked for" in command("--request", request, root=device.layout.root, expected=0).stderr


@pytest.mark.parametrize("content", ["", "{}", '{"release": "../../etc"}', '{"release": 7}', "[" * 4000])
def test_a_request_that_makes_no_sense_is_refused(device, content):
    device.layout.build_request.write_text(content)

    told = command("--request", device.layout.build_request, root=device.layout.root, expected=2).stderr

    assert told.startswith("error: ")


def test_the_command_tells_the_numbers_of_a_release_that_is_not_good_enough(device, tmp_path, monkeypatch):
    monkeypatch.setenv("INVOCATION_ID", "1" * 32)
    bad = deployable(device, tmp_path / "bad", precision="int8", golden=WIDE, harm=0.02)

    told = command("--request", ask(device, bad), root=device.layout.root, expected=7).stderr

    assert "(smoke.accuracy)" in told
    assert 'per_class: {"class-0"' in told


def test_sigterm_leaves_no_half_engine(device, release, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from edge.cli.commands.run import stop_on_signals\n"
        "from edge.device.device import Device\n"
        "from edge.device.layout import Layout\n"
        "from edge.errors import DeployError\n"
        "from edge.runtime.build.engine import Builder, make_in_workshop\n"
        "with stop_on_signals() as stop:\n"
        f"    worker = (sys.executable, '-c', {HANG!r})\n"
        f"    device = Device(Layout(Path({str(device.layout.root)!r})))\n"
        "    made = Builder(device=device, deadline_s=60, stop=stop, worker=worker)\n"
        "    try:\n"
        f"        make_in_workshop(made, {release!r})\n"
        "    except DeployError as error:\n"
        "        sys.exit(error.code)\n"
    )
    process = subprocess.Popen([sys.executable, str(slow)], stderr=subprocess.PIPE, text=True)
    wait_until(sleepers, what="the build has begun")

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=60)[1].strip() == "build.stopped"
    assert engine_folders(device) == []
    wait_until(lambda: not sleepers(), what="the worker is gone")


STARTS = {
    "the worker of a build": (
        "import subprocess\nfrom edge.runtime.build.engine import _WORKER\nsubprocess.run([*_WORKER, '{}'])"
    ),
    "the probe of a GPU": "from edge.engine.tensorrt.facts import probe\nprobe('tensorrt')",
}


@pytest.mark.slow(reason="further services over real models")
@pytest.mark.parametrize("child", STARTS)
def test_a_child_loads_nothing_that_a_variable_names(tmp_path, child):
    ran = tmp_path / "ran"
    (tmp_path / "sitecustomize.py").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n")

    subprocess.run(
        [sys.executable, "-I", "-c", STARTS[child]],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert not ran.exists()
