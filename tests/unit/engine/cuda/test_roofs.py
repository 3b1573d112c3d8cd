"""The roofs of a GPU over the stand-in: what is measured, that it was computed, and what an older GPU lacks."""

import pytest

from edge.engine.cuda import products, roofs
from edge.engine.cuda.roofs import GpuRoofMeter
from edge.types import Precision
from tests.support.cuda_driver import stand_in

LEFT = ("live", "contexts", "device_bytes")


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(products, "LEAST_S", 0.001)
    monkeypatch.setattr(roofs, "_LEAST_S", 0.001)
    monkeypatch.setattr(roofs, "SET_BYTES", (1 << 16, 1 << 18, 1 << 20))
    with stand_in() as made:
        yield made


def test_a_round_has_a_peak_for_each_precision_and_a_rate_for_each_working_set(device):
    before = {name: device[name] for name in LEFT}

    first, second = (GpuRoofMeter(engine="tensorrt 10.3.0").measure() for _ in range(2))
    both = first.with_rounds_of(second)

    assert {name: device[name] for name in LEFT} == before
    assert both.title == "Stand-in, 8 multiprocessors, measured"
    assert (both.called, both.engine, both.cpu_share) == ("this", "tensorrt 10.3.0", 1.0)
    assert [len(both.peaks[kind].rounds) for kind in Precision] == [2, 2, 2]
    assert min(both.peak(kind) for kind in Precision) > 0
    assert [one.size_bytes for one in both.sets] == [1 << 16, 1 << 18, 1 << 20]
    assert both.move_s(1 << 20) > 0


def test_before_8_0_only_float32_has_a_peak(device):
    device.set(major=7, minor=2)

    found = GpuRoofMeter(engine="tensorrt 8.6.1").measure()

    assert set(found.peaks) == {Precision.FP32}
    assert set(found.why_no) == {Precision.FP16, Precision.INT8}
    assert "begins with compute capability 8.0, this is 7.2" in found.why_no[Precision.INT8]


def test_working_sets_are_no_larger_than_a_part_of_the_memory_that_is_free(device):
    device.set(memory_bytes=device["device_bytes"] + (1 << 22))

    sizes = [one.size_bytes for one in GpuRoofMeter(engine="e").measure().sets]

    assert sizes == [1 << 16, 1 << 18]
