"""Signal to noise, losses and verdicts against noise that was put in and cases worked by hand."""

import math
import tracemalloc

import numpy as np
import pytest

from edge.evaluate.layers import (
    MOST_ADDED_NOISE,
    ComparedLayer,
    LayerError,
    LayerErrors,
    LayerTimes,
    LayerVerdict,
    Quantization,
    worst_layers,
)

HERE = Quantization(range_=127.0, step=1.0)


def arrays(*values):
    return tuple(np.array(value, np.float32) for value in values)


def layer(name="n", *, quantization=HERE):
    return ComparedLayer(
        name=name,
        op_type="Conv",
        input_="x",
        output="y",
        macs=30,
        quantization=quantization,
        float_copy=None if quantization is None else "y/float",
    )


def error(own_sqnr_db=40.0, *, times=None, quantization=HERE, name="n"):
    return LayerError(
        layer=layer(name, quantization=quantization), sqnr_db=3.0, input_sqnr_db=30.0,
        own_sqnr_db=None if quantization is None else own_sqnr_db, clipped_share=0.0, dead_share=0.0, mac_share=0.5,
        times=times,
    )  # fmt: skip


def times(float_ms, int8_ms):
    return LayerTimes(float_s=np.array(float_ms) / 1e3, int8_s=np.array(int8_ms) / 1e3)


def test_sqnr_of_a_known_noise():
    errors = LayerErrors({})
    errors.add("t", *arrays([3, -4, 0, 10], [3, -4, 1, 12]))  # signal 125, noise 5

    assert errors.sqnr_db("t") == pytest.approx(10 * math.log10(25))


def test_sqnr_of_uniform_values_rounded_to_steps():
    values = np.random.default_rng(0).uniform(-1, 1, (4, 50_000)).astype(np.float32)
    errors = LayerErrors({})
    errors.add("t", values, np.rint(values * 127) / np.float32(127))

    # Bennett: uniform values have power 1/3, rounding to steps of 1/127 leaves noise of step^2 / 12.
    assert errors.sqnr_db("t") == pytest.approx(10 * math.log10((1 / 3) / (1 / 127**2 / 12)), abs=0.05)


def test_images_one_by_one_are_the_same_as_all_at_once():
    random = np.random.default_rng(1)
    exact = random.normal(0, 1, (5, 3, 70, 70)).astype(np.float32)
    rounded = exact + random.normal(0, 0.1, exact.shape).astype(np.float32)
    single, together = (LayerErrors({"t": Quantization(range_=2.0, step=0.1)}) for _ in range(2))

    together.add("t", exact, rounded)
    for one, other in zip(exact, rounded, strict=True):
        single.add("t", one, other)

    assert single.sqnr_db("t") == pytest.approx(together.sqnr_db("t"), rel=1e-12)
    assert single.sqnr_db("t") == pytest.approx(20, abs=0.1)


def test_sums_are_in_float64():
    errors = LayerErrors({})
    errors.add("t", *arrays([4096.0], [4095.0]))
    for _ in range(1000):  # less than a float32 of 2**24 can tell
        errors.add("t", *arrays([0.03125], [0.03125]))

    assert errors._sums["t"].signal == 4096**2 + 1000 * 0.03125**2


@pytest.mark.parametrize(
    ("exact", "rounded", "expected"),
    [([1, 2], [1, 2], math.inf), ([0, 0], [0, 1], -math.inf), ([0, 0], [0, 0], math.nan)],
)
def test_without_noise_or_signal_no_number_is_made_up(exact, rounded, expected):
    errors = LayerErrors({})
    errors.add("x", *arrays(exact, rounded))
    errors.add("y", *arrays(exact, rounded))
    errors.add("y/float", *arrays(exact, rounded))
    found = errors.result(layer(), all_macs=60, times=None)

    np.testing.assert_equal(found.sqnr_db, expected)
    assert found.as_json()["sqnr_db"] is None


def test_an_overflow_in_int8_has_no_signal_left():
    errors = LayerErrors({})
    errors.add("t", *arrays([1, 2], [1, math.inf]))

    assert errors.sqnr_db("t") == -math.inf


def test_shares_of_clipped_and_dead_values_counted_by_hand():
    errors = LayerErrors({"x": Quantization(range_=10.0, step=10 / 127)})
    half = 5 / 127
    #           at the range: kept    clipped        dead: below half a step   zero is not dead, and not lost
    values = [10.0, -10.0, 9.0, 5.0, 10.01, -30.0, half * 0.99, -half * 0.5, half * 1.01, 0.0, 0.0, 0.0]
    errors.add("x", *arrays(values, values))
    errors.add("y", *arrays([1], [1]))
    errors.add("y/float", *arrays([1], [1]))

    found = errors.result(layer(), all_macs=60, times=None)

    assert found.clipped_share == pytest.approx(2 / 12)
    assert found.dead_share == pytest.approx(2 / 9)
    assert found.mac_share == 0.5


def test_a_layer_in_float_has_no_range_to_lose_values_by():
    errors = LayerErrors({"x": HERE})  # another layer reads it in INT8
    errors.add("x", *arrays([1000, 0.1], [127, 0]))
    errors.add("y", *arrays([1], [1]))
    errors.add("y/float", *arrays([1], [1]))

    found = errors.result(layer(quantization=None), all_macs=60, times=None)

    assert (found.clipped_share, found.dead_share) == (None, None)
    assert found.as_json()["precision"] == "float"
    assert found.verdict is LayerVerdict.FLOAT


def test_added_noise_is_that_against_the_copy_in_float_whatever_came_in():
    errors = LayerErrors({"x": HERE})
    errors.add("x", *arrays([10], [5]))
    errors.add("y", *arrays([10], [6]))
    errors.add("y/float", *arrays([5, 0], [6, 2]))  # signal 25, noise 5

    found = errors.result(layer(), all_macs=60, times=None)

    assert found.added_noise == pytest.approx(0.2)
    assert error(quantization=None).added_noise is None


FASTER = times([5, 5.1, 5.2, 9], [2, 2.1, 2.2, 9])
OVERLAPPING = times([3, 3.1, 3.2, 3.3], [2.9, 2.9, 3.2, 3.2])
LIMIT_DB = -10 * math.log10(MOST_ADDED_NOISE)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (error(times=FASTER), LayerVerdict.PAYS),
        (error(times=OVERLAPPING), LayerVerdict.SAVES_NO_TIME),
        (error(times=times([2], [5])), LayerVerdict.SAVES_NO_TIME),
        (error(times=None), LayerVerdict.UNKNOWN),
        (error(LIMIT_DB - 0.1, times=FASTER), LayerVerdict.COSTS_ACCURACY),
        (error(LIMIT_DB + 0.1, times=FASTER), LayerVerdict.PAYS),
        (error(3.0, times=None), LayerVerdict.COSTS_ACCURACY),
        (error(math.nan, times=FASTER), LayerVerdict.UNKNOWN),
        (error(-math.inf, times=FASTER), LayerVerdict.COSTS_ACCURACY),
        (error(3.0, times=FASTER, quantization=None), LayerVerdict.FLOAT),
    ],
)
def test_verdicts(found, expected):
    assert found.verdict is expected


def test_the_worst_are_those_that_add_most_and_run_in_int8():
    mild, bad, worse = error(20, name="mild"), error(10, name="bad"), error(5, name="worse")
    good = error(math.inf, name="adds none")
    kept = error(0, name="kept", quantization=None)
    undefined = error(math.nan, name="undefined")

    found = worst_layers((mild, kept, bad, undefined, good, worse), count=2)

    assert [one.layer.name for one in found] == ["worse", "bad"]
    assert worst_layers((mild, good), count=10) == (mild,)


def test_medians_are_told_in_milliseconds():
    content = error(times=FASTER).as_json()

    assert (content["float_ms"], content["int8_ms"]) == (pytest.approx(5.15), pytest.approx(2.15))


def test_memory_does_not_grow_with_images():
    errors = LayerErrors({"t": HERE})
    values = np.random.default_rng(0).normal(0, 1, (1, 8, 200, 200)).astype(np.float32)
    errors.add("t", values, values)
    tracemalloc.start()
    for _ in range(20):  # 1.3 MB each
        errors.add("t", values.copy(), values.copy())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 100_000


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r'"t": \(2,\) in float, \(1,\) in INT8'):
        LayerErrors({}).add("t", *arrays([1, 2], [1]))


@pytest.mark.parametrize(("range_", "step"), [(0, 1), (1, 0), (1, 2), (math.inf, 1), (math.nan, 1)])
def test_a_range_that_is_none_is_refused(range_, step):
    with pytest.raises(ValueError, match="a range is larger than its step"):
        Quantization(range_=range_, step=step)


def test_a_layer_in_int8_without_a_copy_in_float_is_refused():
    with pytest.raises(ValueError, match="n: a layer in INT8 has a range and a copy in float"):
        ComparedLayer(name="n", op_type="Conv", input_="x", output="y", macs=1, quantization=HERE, float_copy=None)


def test_times_of_no_run_are_refused():
    with pytest.raises(ValueError, match="at least one run"):
        times([], [1])
