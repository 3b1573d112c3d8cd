"""Peaks of a GPU over the stand-in: that what is claimed was computed, and what is said where it cannot be."""

import dataclasses
import types

import numpy as np
import pytest

from edge.engine.cuda import cutlass, peaks, products
from edge.engine.cuda.cutlass import conv_peak
from edge.engine.cuda.jetson_modules import jetson_module_of
from edge.engine.cuda.peaks import gpu_peaks
from edge.engine.kind import Peak
from edge.errors import EngineError
from edge.types import Precision
from tests.support.cuda_driver import stand_in

GIB = 1024**3


@pytest.fixture
def device(monkeypatch):
    for module in (peaks, products):
        monkeypatch.setattr(module, "LEAST_S", 0.001)
    monkeypatch.setattr(peaks, "_COPY_BYTES", 1 << 20)
    with stand_in() as made:
        yield made


def test_each_peak_is_measured_and_nothing_is_left_behind(device):
    before = {name: device[name] for name in ("live", "contexts", "device_bytes")}

    found = {peak.name: peak for peak in gpu_peaks("NVIDIA Jetson Orin NX Engineering Reference Developer Kit")}

    assert found["int8 tensor cores"].value > 0
    assert found["int8 tensor cores"].ceiling == 25.1  # 8 GiB
    assert found["fp16 tensor cores"].value > 0
    assert found["fp32 CUDA cores"].value is not None
    assert found["memory copy"].value > 0
    assert found["memory copy"].ceiling == 102.4
    assert {name: device[name] for name in before} == before


@pytest.mark.parametrize(
    ("precision", "factors"),
    [
        (Precision.INT8, (0x01010102, 0x01010101)),
        (Precision.FP16, (0x3C003C00, 0x3C004000)),
        (Precision.FP32, (1.0, 1.5)),
    ],
)
def test_a_sum_that_is_wrong_is_no_peak(device, monkeypatch, precision, factors):
    wrong = dataclasses.replace(products._KERNELS[precision], factors=factors, most_rounds=1)
    monkeypatch.setitem(products._KERNELS, precision, wrong)

    with pytest.raises(EngineError, match=f"products in {precision.value} came to a wrong sum"):
        list(gpu_peaks(None))


def test_before_8_0_the_tensor_cores_are_not_measured_and_the_memory_is(device):
    device.set(major=7, minor=2)

    found = {peak.name: peak for peak in gpu_peaks(None)}

    assert found["int8 tensor cores"].value is None
    assert "m16n8k32 begins with compute capability 8.0, this is 7.2" in found["int8 tensor cores"].detail
    assert "m16n8k16 begins with compute capability 8.0, this is 7.2" in found["fp16 tensor cores"].detail
    assert found["fp32 CUDA cores"].value is not None
    assert found["memory copy"].value > 0
    assert found["memory copy"].ceiling is None


@pytest.mark.parametrize(
    ("model", "gib", "tops"),
    [
        ("NVIDIA Jetson AGX Orin Developer Kit", 61.4, 85.0),
        ("NVIDIA Jetson AGX Orin Developer Kit", 29.9, 53.3),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super", 15.3, 38.4),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", 7.4, 33.0),
        ("NVIDIA Jetson Orin Nano Developer Kit", 3.6, 10.0),
    ],
)
def test_a_module_is_known_by_its_name_and_memory(model, gib, tops):
    module = jetson_module_of(model, int(gib * GIB))

    assert module.int8_tops == tops


@pytest.mark.parametrize("model", [None, "Some other module", "NVIDIA Jetson Xavier NX"])
def test_other_machines_have_no_ceiling(model):
    assert jetson_module_of(model, 8 * GIB) is None


def test_the_share_of_the_ceiling_is_told_only_where_both_are_known():
    told = Peak(name="x", unit="TOPS", value=15.05, detail="", ceiling=30.1).as_json()
    unknown = Peak(name="x", unit="TOPS", value=15.05, detail="").as_json()
    absent = Peak(name="x", unit="TOPS", value=None, detail="", ceiling=30.1).as_json()

    assert (told["share"], unknown["share"], absent["share"]) == (0.5, None, None)


class FakeOperation:
    def __init__(self):
        self.runs = 0

    def run(self, arguments):
        self.runs += 1


class FakePlan:
    """CUTLASS 4.2's answers for convolutions of int8, forward, NHWC."""

    def __init__(self, *, element_input, element_weight, element_C, element_output, element_accumulator):  # noqa: N803
        if element_input == "u8":
            raise Exception("No kernel configuration found for supported data type and layout combination")
        if element_output == "s32":
            raise Exception("No operations of alignment 16 16 4 found for data type and layout combination")
        self.operation = FakeOperation()

    def run(self, given, weight, c, output, stride, padding):
        assert (given.dtype, weight.dtype, output.dtype) == (np.int8, np.int8, np.int8)
        assert given.shape[:3] == output.shape[:3]
        return "arguments"


class FakeGpu:
    def __init__(self):
        import contextlib

        self.current = contextlib.nullcontext


def test_combinations_that_cutlass_lacks_are_named_beside_the_one_that_it_has(monkeypatch):
    types_ = types.SimpleNamespace(s8="s8", u8="u8", s32="s32")
    module = types.SimpleNamespace(DataType=types_, op=types.SimpleNamespace(Conv2dFprop=FakePlan))
    monkeypatch.setitem(__import__("sys").modules, "cutlass_cppgen", module)
    monkeypatch.setattr(cutlass, "find_spec", lambda name: object())
    monkeypatch.setattr(cutlass.shutil, "which", lambda name: "/usr/bin/nvcc")
    driver = types.SimpleNamespace(Context=types.SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(cutlass, "import_pycuda", lambda: driver)
    monkeypatch.setattr(cutlass, "_LEAST_S", 0.001)

    peak = conv_peak(FakeGpu())

    assert peak.value > 0
    assert peak.detail.startswith(
        "s8 x s8 to s8, sums in s32; CUTLASS lacks s8 x s8 to s32, sums in s32: No operations"
    )
    assert "CUTLASS lacks u8 x s8 to s32, sums in s32: No kernel configuration" in peak.detail


@pytest.mark.parametrize(
    ("nvcc", "spec", "words"),
    [(None, object(), "nvcc is not here"), ("/usr/bin/nvcc", None, "pip install nvidia-cutlass")],
)
def test_without_nvcc_or_cutlass_it_says_which_is_missing(monkeypatch, nvcc, spec, words):
    monkeypatch.setattr(cutlass, "find_spec", lambda name: spec)
    monkeypatch.setattr(cutlass.shutil, "which", lambda name: nvcc)

    peak = conv_peak(FakeGpu())

    assert peak.value is None
    assert words in peak.detail
