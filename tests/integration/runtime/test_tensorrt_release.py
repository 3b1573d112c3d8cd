"""A release on a Jetson, built by TensorRT in the builder's process, proven, served; TensorRT and GPU are not real."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest

from edge.bundle.manifest import GoldenLimits
from edge.device.engines import read_record
from edge.engine.section import read_model
from edge.errors import EngineError
from edge.runtime.agent.watch import _release as status_of
from edge.runtime.serve.engine import open_release, start_engine
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.publishing import birth_message
from edge.runtime.trial.soundness import problem_of_release
from tests.support.deployable import deployable
from tests.support.fake_gpu import WORKER
from tests.support.raised import error_of
from tests.support.runs import build_for_release, builder, serve

pytestmark = [pytest.mark.usefixtures("fake_board"), pytest.mark.slow(reason="further services over real models")]
WIDE = GoldenLimits(min_recall=0.9, max_score_error=0.2)
INT8_WINS = {"int8_ms": 1, "float_ms": 20}
FLOAT_WINS = {"int8_ms": 20, "float_ms": 1}
MODEL = {"onnx": "model.onnx", "precision": "int8", "calibration": "model.calib.json", "fallback": "fp16"}
FALLING_BACK = {"precision": "int8", "harm": 0.02, "pipeline": {"model": MODEL}}


def staged(device, folder, *, limits=WIDE, **more):
    return deployable(device, folder, golden=limits, engine={"kind": "auto", "max_batch": 1, "input": [96, 96]}, **more)


def build(device, release, **faults):
    return build_for_release(builder(device, WORKER.format(faults=faults)), release)


@pytest.mark.parametrize(("precision", "route"), [("fp32", "float-weak"), ("fp16", "float-weak"), ("int8", "qdq-weak")])
def test_auto_builds_proves_and_serves_a_plan(device, tmp_path, precision, route):
    release = staged(device, tmp_path / "source", precision=precision)

    built = build(device, release, refuses_cache=True, **INT8_WINS)

    assert built.golden.passed
    assert read_record(device.engines, built.key).inputs.kind == "tensorrt"
    assert built.engine.startswith(f"tensorrt {precision}, {route}: ")
    plan = (device.layout.engine(built.key) / "model.plan").read_bytes()
    assert plan.startswith(b"EDGETRT1\n")
    assert problem_of_release(device, release) is None
    messages, report = serve(device, release)
    assert (report.engine, report.precision.value) == ("tensorrt 10.3.0", precision)
    assert report.inferred == 30
    assert report.is_balanced
    assert any(one["detections"] for one in messages if one["schema"] == "edge.detections/1")


@pytest.mark.parametrize("serves", [True, False])
def test_a_build_beside_a_service_is_marked(device, tmp_path, serves):
    folder = device.layout.health.parent
    folder.mkdir(parents=True, exist_ok=True) if serves else shutil.rmtree(folder, ignore_errors=True)

    built = build(device, staged(device, tmp_path / "source", precision="fp16"))

    assert built.report.get("timed_beside_a_service", False) == serves
    assert [path.name.endswith(".beside.timing") for path in device.layout.build_cache.glob("*.timing")] == [serves]


def test_the_service_of_a_release_knows_that_a_build_runs_by_its_folder(device, tmp_path):
    release = staged(device, tmp_path / "source", precision="fp16")
    build(device, release)
    pipeline, deployed = open_release(device.layout.release(release))
    parts, folder = build_parts(pipeline, deployed=deployed), device.layout.build_progress.parent
    found = []
    for does_run in (False, True, False):
        folder.mkdir(parents=True) if does_run else shutil.rmtree(folder, ignore_errors=True)
        found.append(parts.build_runs())
    parts.inference.engine.close()
    parts.publisher.close()

    assert found == [False, True, False]


def test_int8_that_fails_its_golden_frames_gives_way_to_fp16(device, tmp_path):
    release = staged(device, tmp_path / "source", **FALLING_BACK)

    built = build(device, release, refuses_cache=True, **INT8_WINS)

    assert built.engine.startswith("tensorrt fp16 instead of int8, float-weak: int8 does not find ")
    assert set(built.report["account"]["by_precision"]) == {"fp16"}
    _, report = serve(device, release)
    assert report.precision.value == "fp16"


def test_of_two_int8_forms_the_one_that_passes_the_golden_frames_serves(device, tmp_path):
    release = staged(device, tmp_path / "source", **FALLING_BACK)

    built = build(device, release, **INT8_WINS)

    assert built.engine.startswith("tensorrt int8, implicit-cache: ")
    first, second = built.report["int8_forms"]["rows"]
    assert (first["form"], len(first["misses"])) == ("qdq-weak", 2)
    assert second == {"form": "implicit-cache"}


def test_build_report_status_and_info_message_tell_the_same_of_a_fallback(device, tmp_path):
    release = staged(device, tmp_path / "source", **FALLING_BACK)

    built = build(device, release, **FLOAT_WINS)

    line = built.engine
    report = json.loads((device.layout.engine(built.key) / "build.json").read_text())["report"]
    pipeline, deployed = open_release(device.layout.release(release))
    spec = read_model(pipeline)
    running = start_engine(pipeline, spec, deployed)
    info = birth_message(pipeline, spec, running, deployed).engine
    running.engine.close()
    assert re.fullmatch(
        r"tensorrt fp16 instead of int8, float-weak: int8 is not faster here: \S.*\S; "
        r"fp16 needs no scales \(layers \d+ fp16; 0 reformats\)",  # it was not asked for: int8 was
        line,
    )
    assert report["fallback"]["reason"] in line
    assert (report["fallback"]["asked"], report["fallback"]["taken"]) == ("int8", "fp16")
    status = status_of(SimpleNamespace(device=device), release)
    assert (status.engine, status.precision) == (line, "fp16")
    assert (info.precision, info.asked, info.why) == ("fp16", "int8", read_record(device.engines, built.key).why)


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("Error Code 2: OutOfMemory (no further information)", "build.failed", "memory ran out while TensorRT built"),
        ("killed", "build.oom", "killed"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_no_plan(device, tmp_path, fault, code, told):
    release = staged(device, tmp_path / "source")

    error = error_of(build, device, release, build=fault)

    assert (error.code, told in error.problem) == (code, True)
    assert not list(device.layout.root.rglob("model.plan"))


def test_a_plan_of_another_tensorrt_is_named_when_it_is_loaded_and_built_anew(device, tmp_path):
    release = staged(device, tmp_path / "source")
    first = build(device, release, version="10.16.1.11")  # the key is the same, as after a library was changed by hand

    with pytest.raises(EngineError, match=r"built by tensorrt 10\.16\.1\.11, here is tensorrt 10\.3\.0"):
        serve(device, release)

    again = staged(device, tmp_path / "again", limits=GoldenLimits(min_recall=0.8, max_score_error=0.2), sequence=2)
    built = build(device, again)
    assert (built.key, built.reused) == (first.key, False)
    assert serve(device, again)[1].engine == "tensorrt 10.3.0"
