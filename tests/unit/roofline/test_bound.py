"""Bounds, and what INT8 is worth, against times worked by hand on a machine of round figures."""

import pytest

from edge.roofline.bound import Bound, Gain, bound_of_model, worth_of_int8
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


HALF, INT8 = Precision.FP16, Precision.INT8


@pytest.fixture
def worth(machine, layer, model):
    def bound(*rows):
        layers = [layer(name, operations=ops, moved=moved, precision=kind) for name, ops, moved, kind in rows]
        return bound_of_model(model(*layers), machine())

    before = bound(
        ("hard", 10_000, 160, HALF), ("wide", 100, 1600, HALF), ("same", 100, 800, HALF), ("kept", 5_000, 80, HALF),
        ("mixed", 0, 800, HALF), ("gone", 500, 8, HALF),
    )  # fmt: skip
    after = bound(
        ("hard", 10_000, 80, INT8), ("wide", 100, 800, INT8), ("same", 100, 800, HALF), ("kept", 5_000, 80, HALF),
        ("mixed", 0, 1200, HALF), ("new", 0, 80, INT8),
    )  # fmt: skip
    most = bound(
        ("hard", 10_000, 80, INT8), ("wide", 100, 800, INT8), ("same", 100, 800, HALF), ("kept", 5_000, 40, INT8),
        ("mixed", 0, 400, INT8), ("new", 0, 80, INT8),
    )  # fmt: skip
    return worth_of_int8(before, after, most=most)


def names(layers):
    return [one.name for one in layers]


def test_each_layer_gains_in_one_way(worth):
    assert names(worth.of(Gain.OPERATIONS)) == ["hard"]  # 200 ns of compute become 100
    assert names(worth.of(Gain.BYTES)) == ["wide", "gone"]  # 200 ns of memory become 100; 10 ns are not there any more
    assert names(worth.of(Gain.NOTHING)) == ["same", "kept"]
    assert names(worth.of(Gain.LESS_THAN_NOTHING)) == ["mixed", "new"]  # 100 ns become 150; 10 ns come on top
    assert [one.saved_s for one in worth.of(Gain.LESS_THAN_NOTHING)] == pytest.approx([-50e-9, -10e-9])


def test_the_whole_is_the_sum_of_all(worth):
    assert worth.before.least_s == pytest.approx(710e-9)
    assert worth.after.least_s == pytest.approx(560e-9)
    assert worth.times_faster == pytest.approx(710 / 560)
    assert sum(one.saved_s for one in worth.layers) == pytest.approx(150e-9)


def test_the_float_remainder_of_a_table_is_what_more_int8_would_save(worth):
    assert worth.remainder_s == pytest.approx(150e-9)  # kept: 50, mixed: 100
    assert names(worth.left_in_float) == ["mixed", "kept"]
    assert worth.as_json()["left_in_float"] == ["mixed", "kept"]


def test_without_a_table_there_is_no_remainder(worth):
    alone = worth_of_int8(worth.before, worth.after)

    assert (alone.remainder_s, alone.left_in_float) == (0.0, ())


def test_worth_as_json(worth):
    found = worth.as_json()

    assert found["float"] == "fp16"
    assert found["saved_s"]["operations"] == pytest.approx(100e-9)
    assert found["layers"][0] == {
        "layer": "hard", "gain": "operations", "is_int8": True,
        "float_least_s": pytest.approx(200e-9), "int8_least_s": pytest.approx(100e-9),
    }  # fmt: skip
