"""Peaks that follow from others, against what ONNX Runtime finds in tiny detectors."""

import math

import numpy as np
import pytest

from edge.calibrate.findings import facts_of_graph
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from edge.quantize.new_tables import derived_peaks, is_range, tensors_to_look_at
from tests.support import models
from tests.support.models import Net
from tests.support.tables import all_tensors, csp, minmax, pictures

FAMILIES = ["yolov5", "yolov8", "yolov10", "yolox"]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return getattr(models, request.param)(tmp_path_factory.mktemp("models") / "m.onnx", batch=1)


def parts_of(path):
    """Return graph, facts, the tensors that are counted, the other activations, and those of them to look at."""
    graph = load_graph(path)
    facts = facts_of_graph(graph, inspect_model(path))
    counted = quantizable_tensors(graph)
    others = [name for name in facts.activations if name not in set(counted)]
    return graph, facts, counted, others, tensors_to_look_at(graph, others, scores=facts.scores)


def test_every_activation_is_counted_looked_at_or_derived(model):
    graph, facts, counted, others, looked_at = parts_of(model)

    derived = derived_peaks(graph, others, dict.fromkeys((*counted, *looked_at), 1.0))

    assert {*counted, *looked_at, *derived} >= set(facts.activations)
    assert not set(derived) & {*counted, *looked_at}
    assert derived


def test_derived_peaks_bound_the_true_ones(model):
    graph, _, counted, others, looked_at = parts_of(model)
    true = minmax(model, pictures())

    derived = derived_peaks(graph, others, {name: true[name] for name in (*counted, *looked_at)})

    assert derived
    for name, peak in derived.items():
        assert true[name] <= peak * (1 + 1e-6), name


def test_scores_are_looked_at_although_a_sigmoid_is_bounded(model):
    graph, facts, _, others, looked_at = parts_of(model)

    assert facts.scores
    assert set(facts.scores) & set(others) <= set(looked_at)
    assert not set(facts.scores) & set(tensors_to_look_at(graph, others, scores=()))


def test_what_moves_or_joins_has_the_exact_peak_in_a_neck(tmp_path):
    names = csp(tmp_path / "csp.onnx")
    graph = load_graph(tmp_path / "csp.onnx")
    true = {name: float(np.abs(x).max()) for name, x in all_tensors(tmp_path / "csp.onnx", pictures(size=32)).items()}
    wanted = [names[key] for key in ("joined", "sppf", "up", "neck")]
    sources = [names[key] for key in ("a", "b", "add", "cv3", "pool1", "pool2", "cv4", "lateral")]

    derived = derived_peaks(graph, wanted, {name: true[name] for name in sources})

    assert derived == {name: true[name] for name in wanted}


def test_a_chain_is_derived_in_the_order_of_the_graph_whatever_is_asked_first(tmp_path):
    names = csp(tmp_path / "csp.onnx")
    chain = [names["sppf"], names["pool2"], names["pool1"]]

    assert derived_peaks(load_graph(tmp_path / "csp.onnx"), chain, {names["cv3"]: 2.5}) == dict.fromkeys(chain, 2.5)


def test_nothing_is_derived_from_what_is_unknown(tmp_path):
    names = csp(tmp_path / "csp.onnx")

    found = derived_peaks(load_graph(tmp_path / "csp.onnx"), [names["neck"], names["cv3"]], {names["up"]: 1.0})

    assert found == {}


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [("Resize", ("images", "", "scales"), {"mode": "cubic"}), ("Concat", ("images", "stored"), {"axis": 1})],
    ids=["a-cubic-resize-overshoots", "stored-numbers-may-be-larger"],
)
def test_what_may_be_larger_than_its_inputs_is_looked_at(tmp_path, kind, inputs, attributes):
    net = Net(8, batch=1)
    stored = {"scales": net.const([1, 1, 2, 2]), "stored": net.const(np.full((1, 3, 8, 8), 9))}
    made = net.op(kind, *(stored.get(name, name) for name in inputs), **attributes)
    net.op("Relu", made, name="output0")
    net.save(tmp_path / "m.onnx", {"output0": ("c", "h", "w")})

    graph = load_graph(tmp_path / "m.onnx")

    assert tensors_to_look_at(graph, [made], scores=()) == (made,)
    assert derived_peaks(graph, [made], {"images": 1.0}) == {}


@pytest.mark.parametrize("peak", [0.0, -1.0, math.inf, math.nan])
def test_infinities_and_zeros_are_no_ranges(peak):
    assert not is_range(peak)


@pytest.mark.parametrize("peak", [1e-30, 1.0, 3e38])
def test_what_is_finite_and_above_zero_is_a_range(peak):
    assert is_range(peak)
