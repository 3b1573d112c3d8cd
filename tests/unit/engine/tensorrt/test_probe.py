"""TensorRT that is installed and does not work: `auto` finds out in a process of its own, and takes the CPU engine."""

import os
import signal
import subprocess
import sys

import pytest

from edge.engine.kinds import AUTO, choose_kind, facts_of_kind
from edge.engine.tensorrt import facts
from edge.engine.tensorrt.binding import LIBRARIES, import_tensorrt
from edge.engine.tensorrt.machine import read_machine
from edge.errors import MissingDependencyError
from tests.support.cuda_driver.build import driver_library, pycuda_folder
from tests.support.fake_gpu import BOARD
from tests.support.tensorrt import ROOT


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A board whose driver and pycuda work; returns what gives `tensorrt` its content."""
    package = tmp_path / "packages/tensorrt"
    package.mkdir(parents=True)
    # As `stand_in` does: pycuda refers to more than the stand-in has.
    (package.parent / "sitecustomize.py").write_text("import os, sys\nsys.setdlopenflags(os.RTLD_LAZY)\n")
    monkeypatch.setattr(facts, "read_machine", lambda: BOARD)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_library().parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(pycuda_folder()), str(ROOT)]))
    facts.probe.cache_clear()
    yield lambda text: (package / "__init__.py").write_text(text)
    facts.probe.cache_clear()


def test_where_all_of_it_works_auto_takes_it(machine):
    machine('__version__ = "10.3.0"\n')
    assert choose_kind(AUTO).facts is facts_of_kind("tensorrt")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("from tensorrt_bindings_that_lack import *", "No module named 'tensorrt_bindings_that_lack'"),
        ("import ctypes; ctypes.CDLL('libnvinfer.so.10')", "libnvinfer.so.10"),
        ("raise RuntimeError('only for another machine')", "only for another machine"),
        ("", "has no attribute '__version__'"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})", "ended with -11"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_passed_over_and_told(machine, content, told):
    machine(content)
    choice = choose_kind(AUTO)
    assert choice.facts is not facts_of_kind("tensorrt")
    assert "not tensorrt, tensorrt is installed, and does not work" in choice.reason
    assert told in choice.reason


def test_a_library_that_hangs_is_passed_over(machine, monkeypatch):
    machine("import time; time.sleep(600)")
    monkeypatch.setattr(facts, "_ENOUGH_S", 1.0)
    assert "could not be loaded within 1 s" in choose_kind(AUTO).reason


def test_a_driver_that_gives_no_gpu_is_passed_over(machine, tmp_path, monkeypatch):
    machine('__version__ = "10.3.0"\n')
    (tmp_path / "cuda.c").write_text("int cuInit(unsigned flags) { return 803; }\n")
    command = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert "the CUDA driver gives no GPU (cuInit returns 803)" in choose_kind(AUTO).reason


def test_folders_that_an_uninstalled_package_left_are_no_library(tmp_path, monkeypatch):
    for name in LIBRARIES:
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert dict(read_machine(tmp_path).libraries) == {}
    import_tensorrt.cache_clear()
    with pytest.raises(MissingDependencyError, match="TensorRT is not importable"):
        import_tensorrt()
    for name in LIBRARIES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("content", ["from lacking import *", "raise RuntimeError('lacking')", "1 / 0"])
def test_a_library_that_cannot_be_imported_is_told_with_its_reason(tmp_path, monkeypatch, content):
    (tmp_path / "tensorrt.py").write_text(content)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    import_tensorrt.cache_clear()
    with pytest.raises(MissingDependencyError, match=r"tensorrt cannot be imported: .*(lacking|division)"):
        import_tensorrt()
