"""Layers and nodes of an engine that share operators, worked by hand on the machine of round figures."""

from __future__ import annotations

import dataclasses

import pytest

from edge.roofline.bound import bound_of_model
from edge.roofline.efficiency import ExecutedNode, measured_model


def node(name, *layers, ns, kind="Kind impl"):
    return ExecutedNode(name=name, kind=kind, layers=frozenset(layers), seconds=ns * 1e-9)


@pytest.fixture
def bound(machine, layer, model):
    """Three layers: 100 ns by compute, 100 ns by memory, 10 ns by memory; the first is of two operators."""
    one = dataclasses.replace(layer("a", operations=10_000, moved=80), nodes=("a", "a/act"))
    two = dataclasses.replace(layer("b", operations=1_000, moved=800, weights=400), nodes=("b",))
    three = dataclasses.replace(layer("c", operations=0, moved=80), nodes=("c",))
    return bound_of_model(model(one, two, three), machine())


def measured(bound, *nodes, run_ns=1000):
    return measured_model(bound, nodes, run_s=run_ns * 1e-9, resolution_s=0.0)


def test_a_layer_takes_what_all_of_its_nodes_take(bound):
    found = measured(bound, node("x", "a", ns=150), node("y", "a/act", ns=50), node("z", "b", ns=125))
    first, second = found.layers

    assert (first.called, first.measured_s, first.efficiency) == ("a", pytest.approx(200e-9), pytest.approx(0.5))
    assert (second.measured_s, second.efficiency) == (pytest.approx(125e-9), pytest.approx(0.8))
    assert found.ratio == pytest.approx(0.21)
    assert first.operations / first.intensity == pytest.approx(80)


def test_what_has_no_place_is_told(bound):
    reorder, nothing = node("r", ns=70, kind="Reorder jit"), node("n", ns=0)
    found = measured(bound, node("x", "a", ns=200), reorder, nothing, node("zero", "c", ns=0))

    assert [one.layer.name for one in found.untimed] == ["b", "c"]
    assert found.beside == (reorder,)
    assert (found.layers_s, found.beside_s, found.between_s) == pytest.approx((200e-9, 70e-9, 730e-9))
    assert found.as_json()["untimed"] == ["b", "c"]


def test_layers_that_the_engine_made_one_have_the_bound_of_what_no_fusion_saves(bound):
    found = measured(bound, node("x", "a", "b", ns=160), node("y", "b", ns=40), node("z", "c", ns=20))
    both, last = found.layers

    assert (both.called, both.measured_s) == ("a + b", pytest.approx(200e-9))
    # Operations: 100 ns and 10 ns. The 400 bytes of weights take 50; what lies between the two is never stored.
    assert both.least_s == pytest.approx(110e-9)
    assert last.called == "c"


def test_weights_bound_layers_that_became_one_and_compute_little(machine, layer, model):
    pair = [
        dataclasses.replace(layer(name, operations=100, moved=900, weights=800), nodes=(name,)) for name in ("a", "b")
    ]
    found = measured(bound_of_model(model(*pair), machine()), node("x", "a", "b", ns=400))

    assert found.layers[0].least_s == pytest.approx(200e-9)  # 1600 bytes, 8 a nanosecond


def test_faster_than_the_bound_counts_beyond_what_the_clock_can_tell(bound):
    nodes = [node("x", "a", ns=80), node("z", "b", ns=1000)]
    exact = measured_model(bound, nodes, run_s=1e-6, resolution_s=0.0)
    coarse = measured_model(bound, nodes, run_s=1e-6, resolution_s=30e-9)

    assert exact.excess == pytest.approx(0.25)
    assert coarse.excess == pytest.approx(100 / 110 - 1)
    assert coarse.as_json()["fastest_beyond_bound"] == 0.0


def test_layers_far_below_are_those_that_cost_most_and_matter(bound):
    found = measured(bound, node("x", "a", ns=201), node("y", "b", ns=900), node("z", "c", ns=15), run_ns=1200)
    assert [one.called for one in found.far_below] == ["b", "a"]

    small = measured(bound, node("x", "a", ns=110), node("y", "b", ns=110), node("z", "c", ns=30), run_ns=100_000)
    assert small.far_below == ()


def test_json(bound):
    found = measured(bound, node("x", "a", "a/act", ns=160)).as_json()

    assert found["layers"] == [
        {"layers": ["a"], "nodes": [{"name": "x", "kind": "Kind impl", "seconds": pytest.approx(160e-9)}],
         "least_s": pytest.approx(100e-9), "measured_s": pytest.approx(160e-9), "efficiency": 0.625}
    ]  # fmt: skip
    assert (found["precision"], found["far_below"]) == ("int8", [])
