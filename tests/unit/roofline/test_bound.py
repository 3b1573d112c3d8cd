"""Bounds against times worked by hand on a machine of round figures."""

import pytest

from edge.roofline.bound import Bound, bound_of_model
from edge.types import Precision


def test_a_layer_takes_the_longer_of_its_two_times(machine, layer, model):
    found = bound_of_model(
        model(layer("hard", operations=10_000, moved=80), layer("wide", operations=1_000, moved=800)), machine()
    )
    hard, wide = found.layers

    assert (hard.bound, wide.bound) == (Bound.COMPUTE, Bound.MEMORY)
    assert (hard.least_s, wide.least_s) == pytest.approx((100e-9, 100e-9))
    assert (hard.compute_s, hard.memory_s) == pytest.approx((100e-9, 10e-9))
    assert found.least_s == pytest.approx(200e-9)
    assert found.share(wide) == pytest.approx(0.5)
    assert found.memory_bound == (wide,)
    assert found.memory_bound_time_share == pytest.approx(0.5)


def test_at_the_ridge_and_below_memory_is_the_bound(machine, layer, model):
    assert machine().ridge(Precision.INT8) == 12.5
    found = bound_of_model(model(*(layer(str(ops), operations=ops, moved=80) for ops in (999, 1000, 1001))), machine())

    assert [one.bound for one in found.layers] == [Bound.MEMORY, Bound.MEMORY, Bound.COMPUTE]


def test_each_layer_has_the_roof_of_its_own_precision(machine, layer, model):
    kinds = (Precision.INT8, Precision.FP16, Precision.FP32)
    found = bound_of_model(
        model(*(layer(kind.value, operations=100_000, moved=8, precision=kind) for kind in kinds)), machine()
    )

    assert [one.least_s for one in found.layers] == pytest.approx([1e-6, 2e-6, 10e-6])


def test_a_power_mode_lowers_both(machine, layer, model):
    account = model(layer("hard", operations=10_000, moved=80), layer("wide", operations=0, moved=800))
    found = bound_of_model(account, machine(mode="slow"))

    assert found.machine.sm_count == 2
    assert [one.least_s for one in found.layers] == pytest.approx([1000e-9, 400e-9])


def test_a_layer_that_computes_nothing_waits_for_memory_and_one_that_moves_nothing_takes_its_operations(
    machine, layer, model
):
    found = bound_of_model(
        model(layer("move", operations=0, moved=80), layer("work", operations=1000, moved=0)), machine()
    )

    assert [one.least_s for one in found.layers] == pytest.approx([10e-9, 10e-9])
    assert [one.bound for one in found.layers] == [Bound.MEMORY, Bound.COMPUTE]


def test_a_batch_is_told_by_frame(machine, layer, model):
    found = bound_of_model(model(layer("wide", operations=0, moved=800), batch=4), machine())

    assert found.least_s == pytest.approx(100e-9)
    assert found.least_s_per_frame == pytest.approx(25e-9)


def test_nothing_goes_below_the_operations_nor_the_weights_that_no_cache_holds(machine, layer, model):
    small = bound_of_model(model(layer("a", operations=100, moved=8000, weights=900)), machine())
    large = bound_of_model(model(layer("a", operations=100, moved=8000, weights=1800)), machine())

    assert small.floor_s == pytest.approx(1e-9)
    assert large.floor_s == pytest.approx(100e-9)  # 800 of them
    unsaid = bound_of_model(model(layer("a", operations=100, moved=8000, weights=1800)), machine("unsaid"))
    assert unsaid.floor_s == pytest.approx(1e-9)  # a cache of any size may be there
    assert small.floor_s < small.least_s == pytest.approx(1000e-9)


def test_a_machine_whose_peak_is_not_known_has_no_bound(machine, layer, model):
    known = layer("b", operations=1, moved=1, precision=Precision.FP32)
    assert bound_of_model(model(layer("a", operations=1, moved=1)), machine("old")) is None
    assert bound_of_model(model(layer("a", operations=1, moved=1), known), machine("old")) is None
    assert bound_of_model(model(known), machine("old")) is not None


def test_json(machine, layer, model):
    found = bound_of_model(model(layer("wide", operations=1_000, moved=800), batch=2), machine()).as_json()

    assert found["precision"] == "int8"
    assert found["least_s_per_frame"] == pytest.approx(50e-9)
    assert (found["memory_bound_layers"], found["memory_bound_time_share"]) == (1, 1.0)
    assert found["layers"] == [
        {"layer": "wide", "operator": "Conv", "precision": "int8", "intensity": 1.25, "bound": "memory",
         "least_s": pytest.approx(100e-9)}
    ]  # fmt: skip
    assert machine().as_json()["ridge"] == {"int8": 12.5, "fp16": 6.25, "fp32": 1.25}
    assert machine("old").as_json()["peaks_per_s"] == {"int8": None, "fp16": None, "fp32": 10e9}
