"""Peaks of a GPU over the stand-in: that what is claimed was computed, and what is said where it cannot be."""

import dataclasses

import pytest

from edge.engine.cuda import peaks
from edge.engine.cuda.peaks import gpu_peaks
from edge.engine.kind import Peak
from edge.errors import EngineError
from edge.roofline.machines import jetson_of_board
from edge.types import Precision
from tests.support.cuda_driver import stand_in

GIB = 1024**3


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(peaks, "LEAST_S", 0.001)
    monkeypatch.setattr(peaks, "_COPY_BYTES", 1 << 20)
    with stand_in() as made:
        yield made


def test_each_peak_is_measured_and_nothing_is_left_behind(device):
    device.set(memory_bytes=8 * GIB)

    found = {peak.name: peak for peak in gpu_peaks("NVIDIA Jetson Orin NX Engineering Reference Developer Kit")}

    # The stand-in is not quick: on a busy CPU its thousandths of a TOPS are rounded to none.
    measured = ("int8 tensor cores", "fp16 tensor cores", "fp32 CUDA cores", "memory copy")
    assert all(found[name].value >= 0 for name in measured)
    assert found["int8 tensor cores"].ceiling == 25.1
    assert found["memory copy"].ceiling == 102.4


@pytest.mark.parametrize(
    ("precision", "factors"),
    [
        (Precision.INT8, (0x01010102, 0x01010101)),
        (Precision.FP16, (0x3C003C00, 0x3C004000)),
        (Precision.FP32, (1.0, 1.5)),
    ],
)
def test_a_sum_that_is_wrong_is_no_peak(device, monkeypatch, precision, factors):
    device.may_leave = True  # what the error refers to
    wrong = dataclasses.replace(peaks._KERNELS[precision], factors=factors, most_rounds=1)
    monkeypatch.setitem(peaks._KERNELS, precision, wrong)

    with pytest.raises(EngineError, match=f"products in {precision.value} came to a wrong sum"):
        list(gpu_peaks(None))


def test_before_8_0_the_tensor_cores_are_not_measured_and_the_memory_is(device):
    device.set(major=7, minor=5)

    found = {peak.name: peak for peak in gpu_peaks(None)}

    assert found["int8 tensor cores"].value is None
    assert "m16n8k32 begins with compute capability 8.0, this is 7.5" in found["int8 tensor cores"].detail
    assert "m16n8k16 begins with compute capability 8.0, this is 7.5" in found["fp16 tensor cores"].detail
    assert found["fp32 CUDA cores"].value is not None
    assert found["memory copy"].value > 0
    assert found["memory copy"].ceiling is None


@pytest.mark.parametrize(
    ("model", "gib", "tops"),
    [
        ("NVIDIA Jetson AGX Orin Developer Kit", 61.4, 85.2),
        ("NVIDIA Jetson AGX Orin Developer Kit", 29.9, 53.3),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super", 15.3, 38.4),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", 7.4, 33.4),
        ("NVIDIA Jetson Orin Nano Developer Kit", 3.6, 10.2),
    ],
)
def test_a_module_is_known_by_its_name_and_memory(model, gib, tops):
    module = jetson_of_board(model, int(gib * GIB))

    assert round(module.peak(Precision.INT8) / 1e12, 1) == tops


@pytest.mark.parametrize("model", ["", "Some other module", "NVIDIA Jetson Xavier NX"])
def test_other_machines_have_no_ceiling(model):
    assert jetson_of_board(model, 8 * GIB) is None


def test_the_share_of_the_ceiling_is_told_only_where_both_are_known():
    told = Peak(name="x", unit="TOPS", value=15.05, detail="", ceiling=30.1).as_json()
    unknown = Peak(name="x", unit="TOPS", value=15.05, detail="").as_json()
    absent = Peak(name="x", unit="TOPS", value=None, detail="", ceiling=30.1).as_json()

    assert (told["share"], unknown["share"], absent["share"]) == (0.5, None, None)
