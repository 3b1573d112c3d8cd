"""Known-bad combinations, and what doctor tells: on machines made up, with the strict fake as TensorRT."""

import dataclasses

import pytest

from edge.engine.tensorrt import examine
from edge.engine.tensorrt.examine import KNOWN_BAD, known_bad_on, version_numbers
from edge.engine.tensorrt.machine import SystemCopy, ThisMachine
from edge.runtime import doctor
from tests.support import fake_tensorrt
from tests.support.fake_gpu import BOARD
from tests.support.fake_tensorrt import builds

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
    monkeypatch.setattr(examine, "read_device", lambda: builds.ORIN)
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
