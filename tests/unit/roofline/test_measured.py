"""A machine of chosen measurements: its bandwidths by what is moved, and what makes it doubtful."""

from __future__ import annotations

import dataclasses

import pytest

from edge.roofline.bound import Bound, bound_of_model
from edge.roofline.measured import MeasuredMachine, MemoryLevel, Rate, WorkingSet
from edge.types import Precision

CACHES = ((1000, 100.0), (2000, 90.0), (4000, 40.0), (8000, 10.0))  # bytes, bytes per nanosecond


@pytest.fixture
def here():
    """100 operations a nanosecond in INT8, 10 in FP32."""

    def make(sets=CACHES, *, spread=0.0, cpu_share=1.0):
        def rate(best):
            return Rate(rounds=(best * 1e9, best * 1e9 * (1 - spread), 1.0))

        return MeasuredMachine(
            processor="Abacus", cores=1, all_cores=2, engine="beads 1.0",
            peaks={Precision.INT8: rate(100.0), Precision.FP32: rate(10.0)},
            sets=tuple(WorkingSet(size_bytes=size, rate=rate(best)) for size, best in sets),
            cpu_share=cpu_share, why_no={Precision.FP16: "no half beads"},
        )  # fmt: skip

    return make


@pytest.mark.parametrize(
    ("moved", "least_ns"),
    [
        (500, 5.0),  # smaller than all: as the smallest
        (1000, 10.0),
        (1999, 19.99),  # not yet a working set of 2000
        (2000, 2000 / 90),
        (3999, 3999 / 90),
        (4000, 100.0),
        (8000, 800.0),
        (80_000, 8000.0),  # beyond all: as the largest
        (0, 0.0),
    ],
)
def test_what_moves_is_as_fast_as_the_largest_working_set_that_is_no_larger(here, moved, least_ns):
    assert here().move_s(moved) == pytest.approx(least_ns * 1e-9)


def test_a_larger_working_set_that_was_faster_raises_the_bound_of_smaller_ones(here):
    disturbed = here(((1000, 100.0), (2000, 20.0), (4000, 40.0), (8000, 10.0)))

    assert disturbed.move_s(2000) == pytest.approx(50e-9)
    assert disturbed.move_s(1000) == pytest.approx(10e-9)


def test_a_layer_is_bounded_by_the_bandwidth_of_the_level_that_its_bytes_fit(here, layer, model):
    found = bound_of_model(
        model(
            layer("inner", operations=900, moved=1000),
            layer("outer", operations=900, moved=8000),
            layer("hard", operations=100_000, moved=8000),
        ),
        here(),
    )

    assert [one.least_s for one in found.layers] == pytest.approx([10e-9, 800e-9, 1000e-9])
    assert [one.bound for one in found.layers] == [Bound.MEMORY, Bound.MEMORY, Bound.COMPUTE]
    assert found.least_s == pytest.approx(1810e-9)


def test_working_sets_of_much_the_same_rate_are_one_step(here):
    assert here().steps == (
        MemoryLevel(up_to_bytes=2000, bytes_per_s=100e9),
        MemoryLevel(up_to_bytes=4000, bytes_per_s=40e9),
        MemoryLevel(up_to_bytes=8000, bytes_per_s=10e9),
    )
    assert here().bytes_per_s == 10e9
    assert here().ridge(Precision.INT8) == pytest.approx(10)


def test_the_best_round_counts_and_the_second_says_how_sure_it_is():
    rate = Rate(rounds=(80.0, 100.0, 95.0, 10.0))

    assert (rate.best, rate.spread) == (100.0, pytest.approx(0.05))
    assert Rate(rounds=(80.0,)).spread == 1.0
    assert rate.with_rounds_of(Rate(rounds=(120.0,))).best == 120.0


def test_rounds_of_two_measurements_are_put_together(here):
    quick = here(tuple((size, 2 * best) for size, best in CACHES), cpu_share=0.99)
    both = here(cpu_share=0.5).with_rounds_of(quick)

    assert both.move_s(1000) == pytest.approx(5e-9)
    assert both.peak(Precision.INT8) == 100e9
    assert both.cpu_share == 0.99


def test_a_busy_machine_says_so(here):
    assert here().doubt is None
    assert here(spread=0.09).doubt is None
    assert "busy: even the fastest runs had 80%" in here(cpu_share=0.8).doubt
    assert "differ by up to 20%" in here(spread=0.2).doubt
    assert here(spread=0.2).noise == pytest.approx(0.2)
    assert here(spread=0.2).spread_of(Precision.INT8, 8000) == pytest.approx(0.2)
    assert here(spread=0.2).spread_of(Precision.FP16, 8000) == pytest.approx(0.2)


def test_its_names_and_json(here):
    one = here()
    assert (one.called, one.title) == ("this/1", "Abacus, 1 of 2 cores, measured")
    assert dataclasses.replace(one, cores=2).called == "this"

    found = one.as_json()
    assert found["peaks_per_s"] == {"int8": 100e9, "fp16": None, "fp32": 10e9}
    assert found["bandwidths"][1] == {"working_set_bytes": 2000, "bytes_per_s": 90e9, "spread": 0.0}
    assert (found["machine"], found["cores"], found["doubt"]) == ("this/1", 1, None)
