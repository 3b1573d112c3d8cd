"""What INT8 is worth, worked by hand: 8 bytes, 50 float and 100 INT8 operations a nanosecond."""

import pytest

from edge.roofline.bound import Gain, bound_of_model, worth_of_int8
from edge.types import Precision

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


def test_json(worth):
    found = worth.as_json()

    assert found["float"] == "fp16"
    assert found["saved_s"]["operations"] == pytest.approx(100e-9)
    assert found["layers"][0] == {
        "layer": "hard", "gain": "operations", "is_int8": True,
        "float_least_s": pytest.approx(200e-9), "int8_least_s": pytest.approx(100e-9),
    }  # fmt: skip
