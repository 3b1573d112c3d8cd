"""TensorRT as a kind, over the strict fake: what a build says, and plans that are not for this machine."""

import os
import signal
import subprocess
import sys

import pytest

from edge.config.pipeline import load_pipeline
from edge.engine.kind import CalibratingKind, EngineRequest, load_kind
from edge.engine.section import choose_engine
from edge.engine.tensorrt.build import account
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import TensorrtDevice
from edge.errors import EngineError, MissingDependencyError
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt
from tests.support.fake_gpu import ORIN
from tests.support.tensorrt import ROOT

REQUEST = EngineRequest(precision=Precision.FP16, max_batch=2, options=Options())


@pytest.fixture
def kind(monkeypatch):
    monkeypatch.setattr("edge.engine.tensorrt.kind.read_device", lambda: ORIN)
    monkeypatch.setattr(account, "read_device", lambda: ORIN)
    return load_kind("tensorrt")


def test_it_calibrates(kind):
    assert isinstance(kind, CalibratingKind)
    assert kind.calibrators == ("entropy2", "minmax", "entropy", "legacy")


def test_a_build_here_gives_an_account_of_its_layers(kind, spec):
    with fake_tensorrt.used():
        plan = kind.build(Forms(spec), REQUEST)
    assert plan.report["device"] == "Orin"
    assert plan.report["library"] == "tensorrt 10.3.0"
    assert set(plan.report["account"]["by_precision"]) == {REQUEST.precision.value}


def test_a_plan_of_another_version_is_named_before_tensorrt_sees_it(kind, spec):
    with fake_tensorrt.used("10.3.0"):
        plan = kind.build(Forms(spec), REQUEST).data
    with (
        fake_tensorrt.used("10.16.1.11"),
        pytest.raises(EngineError, match=r"by tensorrt 10\.3\.0, here is tensorrt 10\.16"),
    ):
        kind.load(plan, spec, REQUEST)


def test_a_plan_of_another_gpu_is_named(kind, spec, monkeypatch):
    with fake_tensorrt.used():
        plan = kind.build(Forms(spec), REQUEST).data
        other = TensorrtDevice(name="Xavier", compute_capability=(7, 2), memory_bytes=8 << 30, is_integrated=True)
        monkeypatch.setattr("edge.engine.tensorrt.kind.read_device", lambda: other)
        with pytest.raises(EngineError, match=r"for Orin \(compute capability 8\.7\), here is Xavier"):
            kind.load(plan, spec, REQUEST)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
def test_without_a_driver_a_build_says_so_and_does_not_crash(spec):
    with fake_tensorrt.used(), pytest.raises(EngineError, match="CUDA driver"):
        load_kind("tensorrt").build(Forms(spec), REQUEST)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
@pytest.mark.parametrize("version", ["10.3.0", "rtx-1.7.1.116"])
def test_without_a_driver_no_runtime_is_made_because_using_one_crashes(spec, version, monkeypatch):
    with fake_tensorrt.used(version) as fake:
        monkeypatch.setattr(fake.module, "Runtime", None)
        with pytest.raises(EngineError, match="CUDA driver"):
            load_kind("tensorrt").load(b"a plan", spec, REQUEST)


def test_without_tensorrt_it_is_told_how_to_get_it(spec, monkeypatch):
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    from edge.engine.tensorrt.binding import import_tensorrt

    import_tensorrt.cache_clear()
    with pytest.raises(MissingDependencyError, match="TensorRT is not importable"):
        load_kind("tensorrt").build(Forms(spec), REQUEST)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
def test_a_pipeline_that_asks_for_it_by_name_is_told_what_is_missing(tmp_path, spec):
    path = tmp_path / "p.yaml"
    path.write_text(
        f"version: 1\nmodel: {{onnx: {spec.path}, precision: fp32}}\nengine: {{kind: tensorrt, workspace_mib: 256}}\n"
        "streams: [{id: a, uri: 'rtsp://camera/main'}]\nmqtt: {host: h, site: s, tls: false}\n"
    )
    told = r"p\.yaml:3: engine\.kind: tensorrt cannot run here: this machine has no NVIDIA"
    with pytest.raises(EngineError, match=told):
        choose_engine(load_pipeline(path))


def test_a_build_that_is_killed_leaves_no_timing_cache_and_ends_its_own_process_only(tmp_path, spec):
    program = """
import sys
from pathlib import Path
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.build.build import build_plan
from edge.engine.tensorrt.plan import TensorrtDevice
from edge.engine.tensorrt.options import Options
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import Precision
device = TensorrtDevice(name="Orin", compute_capability=(8, 7), memory_bytes=8 << 30, is_integrated=True)
request = EngineRequest(precision=Precision.FP16, max_batch=1, options=Options(), cache_folder=Path(sys.argv[2]))
build_plan(import_tensorrt(), device, Forms(inspect_model(Path(sys.argv[1]))), request)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(spec.path), str(tmp_path)],
        env=fake_tensorrt.environment("10.3.0", build="killed"),
        cwd=ROOT,
        timeout=120,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert list(tmp_path.iterdir()) == []
