"""Why TensorRT cannot run on a machine, what is known to be bad there, and what to do.

Every machine that we know of, made up from files or values, with the strict fake as TensorRT.
"""

import dataclasses
import functools
import os

import pytest

from edge.engine.kinds import AUTO, choose_kind, facts_of_kind
from edge.engine.tensorrt import examine
from edge.engine.tensorrt.examine import KNOWN_BAD, known_bad_on, version_numbers
from edge.engine.tensorrt.facts import FACTS, why_not
from edge.engine.tensorrt.machine import SystemCopy, ThisMachine, read_machine
from edge.runtime import doctor
from tests.support import fake_gpu, fake_tensorrt
from tests.support.fake_gpu import BOARD

changed = functools.partial(dataclasses.replace, BOARD)


def test_an_orin_with_jetpack_runs_it():
    assert why_not(BOARD) is None


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (changed(nodes=()), "--runtime nvidia"),
        (changed(nodes=(), board=None, l4t=None), "no NVIDIA GPU"),
        (changed(closed_nodes=("/dev/nvhost-gpu",), missing_groups=("render",)), "usermod -aG render USER"),
        (changed(closed_nodes=("/dev/nvhost-gpu",)), "usermod -aG video,render USER"),
        (changed(libraries={}), "sudo apt install python3-libnvinfer"),
        (changed(libraries={}, board=None, l4t=None), "pip install tensorrt-cu12"),
        (
            changed(libraries={}, system_copies=(SystemCopy(version="10.3.0", python="3.10"),)),
            "10.3.0 of the system is hidden from this virtual environment",
        ),
        (
            changed(libraries={}, system_copies=(SystemCopy(version="8.5.2.2", python="3.8"),)),
            "is for Python 3.8, this is 3.10",
        ),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(machine, told):
    assert told in why_not(machine)


def test_a_jetson_is_read_from_its_files(tmp_path):
    files = {
        "proc/device-tree/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
        "dev/nvhost-gpu": "",
        "usr/lib/python3.10/dist-packages/tensorrt/__init__.py": '# x\n__version__ = "10.3.0"\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    machine = read_machine(tmp_path)
    assert machine.is_jetson
    assert machine.gpu == "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
    assert (machine.l4t, machine.nodes) == ("36.4.3", ("/dev/nvhost-gpu",))
    assert machine.system_copies == (SystemCopy(version="10.3.0", python="3.10"),)


def test_a_workstation_is_read_from_its_files(tmp_path):
    information = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA GeForce RTX 4070\nIRQ:   \t\t 130\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/nvidiactl").touch()
    machine = read_machine(tmp_path)
    assert not machine.is_jetson
    assert machine.gpu == "NVIDIA GeForce RTX 4070"
    assert machine.nodes == ("/dev/nvidia0",)


def test_the_version_is_read_without_loading_the_library(tmp_path, monkeypatch):
    package = tmp_path / "tensorrt"
    package.mkdir()
    (package / "__init__.py").write_text('raise SystemExit("loaded")\n__version__ = "10.3.0"\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert read_machine(tmp_path).libraries["tensorrt"] == "10.3.0"
    assert facts_of_kind("tensorrt").versions()["tensorrt"] == "10.3.0"


MIB = 1 << 20
CONTEXT_MIB = 300


# "[MemUsageChange] Init builder kernel library" of published logs, and the workspace where the GPU has the same memory.
@pytest.mark.parametrize(
    ("where", "init_mib", "workspace_mib"),
    [
        ("8.6.2, AGX Orin, NVIDIA/TensorRT 3640", 1153, 512),
        ("10.13, AGX Thor R38.4, OE4T/meta-tegra 2120", 1227, 512),
        ("8.6.1, RTX A5000, NVIDIA/TensorRT 3359", 1444, 0),
        ("10.0.1, a desktop", 1762, 0),
    ],
)
def test_memory_that_published_builds_took_is_asked_for_before_one_begins(where, init_mib, workspace_mib):
    model_bytes, pixels = 10 * MIB, 8 * 640 * 640
    model = FACTS.build_memory_bytes(model_bytes, pixels) - FACTS.build_memory_bytes(0, 0)

    assert FACTS.build_memory_bytes(model_bytes, pixels) >= (init_mib + CONTEXT_MIB + workspace_mib) * MIB + model
    assert model >= 8 * model_bytes


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
def test_auto_passes_it_over_where_there_is_no_gpu_and_says_so():
    choice = choose_kind(AUTO)
    assert choice.facts.name != FACTS.name
    assert "not tensorrt, this machine has no NVIDIA GPU" in choice.reason


ORIN = dataclasses.replace(BOARD, is_venv=True)
DESKTOP = ThisMachine(
    architecture="x86_64",
    python="3.12",
    gpus=("RTX 3060",),
    nodes=("/dev/nvidia0",),
    libraries={"tensorrt": "11.4.0.106"},
)


def names(machine, version):
    return {row.what for row in known_bad_on(machine, version)}


@pytest.mark.parametrize(
    ("machine", "version", "expected"),
    [
        (ORIN, "8.6.2", set()),
        (ORIN, "10.3.0", {"TensorRT's calibrators here", "INT8 of heads with TopK"}),
        (ORIN, "10.7.0", {"TensorRT's calibrators here"}),
        (ORIN, "10.16.2", {"TensorRT's calibrators here", "strongly typed Q/DQ beside a Slice", "DLA"}),
        (ORIN, "11.4.1", {"TensorRT's calibrators", "TensorRT for this JetPack"}),
        (dataclasses.replace(ORIN, l4t="39.2"), "11.4.1", {"TensorRT's calibrators"}),
        (DESKTOP, "10.16.2", set()),
        (DESKTOP, "10.3.0", {"INT8 of heads with TopK"}),
        (DESKTOP, "11.0.0", {"TensorRT's calibrators"}),
    ],
)
def test_each_combination_is_found_where_it_is_and_only_there(machine, version, expected):
    assert names(machine, version) == expected


def test_every_row_says_what_to_do_and_where_it_was_reported():
    for row in KNOWN_BAD:
        assert row.fix
        assert row.source
        assert row.since < row.before
        assert len(row.told) < 200


def test_versions_are_compared_by_their_numbers():
    assert version_numbers("10.16.1.11") > version_numbers("10.7.0.post1")
    assert version_numbers("unknown") == ()


def found(machine, monkeypatch, version="10.3.0"):
    monkeypatch.setattr(examine, "read_device", lambda: fake_gpu.ORIN)
    with fake_tensorrt.used(version):
        return {one.name: one for one in examine.examined(machine)}


def test_a_jetson_that_runs_it_is_told_with_its_route(monkeypatch):
    findings = found(ORIN, monkeypatch)
    assert findings["tensorrt"].detail == "tensorrt 10.3.0 on Orin, compute capability 8.7"
    assert findings["int8 route"].detail.startswith("qdq-weak: Q/DQ pairs where they were proven")
    assert "implicit-cache" in findings["int8 route"].detail
    assert not findings["TensorRT's calibrators here"].is_there
    assert "on a workstation" in findings["TensorRT's calibrators here"].detail


def test_a_workstation_with_eleven_is_told_of_the_only_route(monkeypatch):
    findings = found(DESKTOP, monkeypatch, "11.4.0.106")
    assert findings["int8 route"].detail == "qdq-strong: this TensorRT computes in the types of the file only"


@pytest.mark.parametrize(
    ("changes", "name", "told"),
    [
        (
            {"libraries": {}, "system_copies": (SystemCopy(version="10.3.0", python="3.10"),)},
            "system's TensorRT",
            "--system-site-packages",
        ),
        (
            {"libraries": {}, "system_copies": (SystemCopy(version="8.5.2", python="3.8"),)},
            "system's TensorRT",
            "for Python 3.8, this is 3.10",
        ),
        (
            {"closed_nodes": ("/dev/nvhost-gpu",), "missing_groups": ("render",)},
            "groups of the GPU",
            "usermod -aG render",
        ),
        ({"nodes": ()}, "GPU", "--runtime nvidia"),
    ],
)
def test_what_hides_it_is_told_where_it_cannot_run(monkeypatch, changes, name, told):
    finding = found(dataclasses.replace(ORIN, **changes), monkeypatch)[name]
    assert not finding.is_there
    assert told in finding.detail


def test_a_machine_that_has_nothing_of_it_is_told_nothing_more(monkeypatch):
    assert found(ThisMachine(architecture="x86_64", python="3.11"), monkeypatch) == {}


def test_doctor_tells_what_hides_tensorrt_beside_the_reason(monkeypatch):
    hidden = dataclasses.replace(ORIN, libraries={}, system_copies=(SystemCopy(version="10.3.0", python="3.10"),))
    monkeypatch.setattr("edge.engine.tensorrt.facts.read_machine", lambda: hidden)
    monkeypatch.setattr("edge.engine.tensorrt.kind.read_machine", lambda: hidden)
    findings = {one.name: one for one in doctor.examine()}
    assert "hidden from this virtual environment" in findings["tensorrt"].detail
    assert "pyvenv.cfg" in findings["system's TensorRT"].detail
