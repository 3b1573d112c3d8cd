"""A kind of engine takes one folder: with ONNX Runtime beside ours, a release is built, proven and served by it."""

import dataclasses
import sys
import types

import pytest

import edge.engine
from edge.bundle.manifest import GoldenLimits
from edge.device.engines import read_record
from edge.engine.kinds import choose_kind, facts_of_kind, kinds
from edge.engine.section import read_model
from edge.errors import ConfigError, DeployError, EngineError, MissingDependencyError
from edge.runtime.agent.preflight import need_of
from edge.runtime.doctor import examine
from edge.runtime.serve.engine import open_release, start_engine
from edge.runtime.serve.parts import build_parts
from edge.runtime.trial.soundness import problem_of_release, require_files, why_better
from tests.support.deployable import deployable
from tests.support.engines import FOLDER, WORKER
from tests.support.runs import build_for_release, builder, serve

pytestmark = [
    pytest.mark.usefixtures("third_kind"),
    pytest.mark.slow_but("test_a_release_is_built_proven_and_served_by_it", reason="further services over real models"),
]
WIDE = GoldenLimits(min_recall=0.9, max_score_error=0.2)


def without_it(monkeypatch):
    monkeypatch.setattr(edge.engine, "__path__", [path for path in edge.engine.__path__ if path != str(FOLDER)])


def build(device, release, *, worker=WORKER):
    """`worker`: a Python program, or the real one."""
    return build_for_release(builder(device, worker), release)


def opened(device, folder):
    """A release with its engine, opened."""
    release = deployable(device, folder)
    build(device, release)
    return open_release(device.layout.release(release))


@pytest.mark.parametrize(
    ("engine", "named"),
    [({}, "auto"), ({"kind": "onnxruntime", "optimize": False}, "onnxruntime")],
    ids=["auto", "by its name"],
)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_release_is_built_proven_and_served_by_it(device, tmp_path, engine, named, precision):
    release = deployable(
        device,
        tmp_path / "source",
        precision=precision,
        golden=WIDE,
        pipeline={"engine": engine},
        engine={"kind": named, "max_batch": 1, "input": [96, 96]},
    )

    built = build(device, release)

    assert built.golden.passed
    assert read_record(device.engines, built.key).inputs.kind == "onnxruntime"
    assert built.engine == f"onnxruntime {precision}, session: there is one way only"
    assert (device.layout.engine(built.key) / "model.plan").read_bytes().startswith(b"ONNX Runtime plan\n")
    assert problem_of_release(device, release) is None
    messages, report = serve(device, release)
    assert (report.engine.split()[0], report.precision.value) == ("onnxruntime", precision)
    assert report.inferred == 30
    assert report.is_balanced
    detections = [one for one in messages if one["schema"] == "edge.detections/1"]
    assert {one["model"]["precision"] for one in detections} == {precision}


def test_it_is_asked_for_the_memory_that_a_build_takes(device, tmp_path):
    release = deployable(device, tmp_path / "source", engine={"kind": "onnxruntime", "max_batch": 1, "input": [96, 96]})
    model = (device.layout.release(release) / "model.onnx").stat().st_size

    need = need_of(require_files(device, release), device)

    assert need.build_memory_bytes == 256 * 1024**2 + 8 * model + 64 * 96 * 96


def test_an_engine_of_a_kind_that_is_gone_is_another_system_s_and_is_built_anew(device, tmp_path, monkeypatch):
    release = deployable(device, tmp_path / "source")
    build(device, release)

    without_it(monkeypatch)

    assert problem_of_release(device, release).code == "device.engine.changed"
    assert build(device, release, worker=None).engine.startswith("openvino ")
    assert problem_of_release(device, release) is None


def test_a_plan_that_it_does_not_load_ends_the_start_with_what_to_do(device, tmp_path):
    pipeline, deployed = opened(device, tmp_path / "source")
    object.__setattr__(deployed, "plan", b"of another device")

    with pytest.raises(EngineError, match=r"engine [0-9a-f]{12} cannot be loaded: .*no plan.*built again by itself"):
        build_parts(pipeline, deployed=deployed)


def test_an_engine_of_a_kind_that_stopped_working_lets_another_one_be_built(device, tmp_path, monkeypatch):
    pipeline, deployed = opened(device, tmp_path / "source")
    working = facts_of_kind("onnxruntime")
    broken = dataclasses.replace(working, why_not=lambda: "its driver is gone")
    monkeypatch.setattr(sys.modules[f"edge.engine.{working.name}.facts"], "FACTS", broken)

    with pytest.raises(
        EngineError, match=r"it is of onnxruntime, here runs openvino: .*not onnxruntime, its driver is gone"
    ):
        build_parts(pipeline, deployed=deployed)


def test_a_better_kind_that_appears_later_is_named_and_the_working_engine_goes_on_serving(device, tmp_path):
    release = deployable(device, tmp_path / "source")
    with pytest.MonkeyPatch.context() as before:
        without_it(before)
        build(device, release, worker=None)

    told = "onnxruntime runs here by now and auto prefers it to openvino: push the release again to build for it"
    assert why_better(device, release) == told
    pipeline, deployed = open_release(device.layout.release(release))
    running = start_engine(pipeline, read_model(pipeline), deployed)
    assert running.kind == "openvino"
    assert running.why.endswith(told)
    running.engine.close()
    assert serve(device, release)[1].inferred == 30
    assert build(device, release).engine.startswith("onnxruntime ")
    assert why_better(device, release) is None
    assert serve(device, release)[1].engine.startswith("onnxruntime ")


def test_an_engine_that_was_asked_for_by_name_is_never_called_the_lesser_one(device, tmp_path):
    engine = {"kind": "openvino"}
    release = deployable(device, tmp_path / "source", pipeline={"engine": engine}, engine=engine)
    build(device, release)

    assert why_better(device, release) is None
    assert serve(device, release)[1].engine.startswith("openvino ")


def test_the_builder_s_process_builds_for_the_kind_that_it_was_told_or_not_at_all(device, tmp_path):
    release = deployable(device, tmp_path / "source")

    with pytest.raises(DeployError, match=r"engine\.kind 'onnxruntime': expected one of"):  # which it does not find
        build(device, release, worker=None)

    assert not list(device.layout.root.rglob("model.plan"))
    with pytest.MonkeyPatch.context() as before:
        without_it(before)
        assert build(device, release).engine.startswith("openvino ")  # though its process would find a better one
    assert (device.layout.engine(device.releases.engine_key(release)) / "model.plan").read_bytes()[:4] != b"ONNX"


def test_a_library_that_stopped_working_lets_the_engine_be_built_anew(device, tmp_path, monkeypatch):
    pipeline, deployed = opened(device, tmp_path / "source")

    def load(plan, spec, request):
        raise MissingDependencyError("onnxruntime is not importable")

    monkeypatch.setattr("edge.runtime.serve.engine.load_kind", lambda name: types.SimpleNamespace(load=load))

    with pytest.raises(EngineError, match=r"cannot be loaded: onnxruntime is not importable"):
        build_parts(pipeline, deployed=deployed)


def test_auto_takes_the_highest_rank_and_doctor_says_so():
    assert list(kinds())[-1] == "openvino"
    assert choose_kind("auto").facts.name == "onnxruntime"

    found = {one.name: one for one in examine()}

    assert found["engine"].detail.startswith("auto is onnxruntime: ")
    assert found["onnxruntime"].is_there
    assert found["openvino"].is_there


def test_without_its_library_it_is_passed_over_and_why_is_kept(monkeypatch):
    monkeypatch.setattr("edge.engine.onnxruntime.facts.importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"nothing runs here: .*not onnxruntime, ONNX Runtime is not installed: pip"):
        choose_kind("auto")
