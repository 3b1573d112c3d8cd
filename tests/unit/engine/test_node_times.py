"""What all nodes of a compiled model take, of the demo's model."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.engine.kind import MeasuringKind, load_kind
from edge.engine.openvino.node_times import CpuNodeMeter, names_in_nodes
from edge.errors import EngineError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model

MODEL = Path(__file__).parents[3] / "edge/demo/model/traffic.onnx"


@pytest.fixture(scope="module")
def meter():
    spec = inspect_model(MODEL)
    names = [node.name for node in load_graph(MODEL).nodes]
    made = CpuNodeMeter(spec, names, content=MODEL.read_bytes(), rows=1, cores=1)
    made.measure()
    made.measure()
    return made


def test_every_convolution_is_in_a_node_of_its_own(meter):
    convolutions = [node.name for node in load_graph(MODEL).nodes if node.op_type == "Conv"]
    nodes = meter.nodes()

    assert {name for node in nodes for name in node.layers} >= set(convolutions)
    for name in convolutions:
        (node,) = (one for one in nodes if name in one.layers and one.kind.startswith("Convolution"))
        assert 0 < node.seconds < meter.run_s


def test_blocks_of_two_compilations_are_the_same_nodes(meter):
    nodes = meter.nodes()

    assert len({node.name for node in nodes}) == len(nodes) < 150
    assert any(not node.layers and node.kind.startswith("Reorder") for node in nodes)


def test_each_block_is_the_mean_of_its_own_runs_without_the_first_that_are_slow(meter):
    """The sum of the nodes is most of a run: it cannot be more than the longest, nor little of the fastest."""
    total_s = sum(node.seconds for node in meter.nodes())

    assert 0.6 * meter.run_s < total_s < 5 * meter.run_s


def test_names_are_found_whole_whatever_is_in_them():
    origins = {"one": "a,b/WithoutBiases,c", "two": "ab,x,y", "none": ""}

    assert names_in_nodes(origins, ["a", "b", "x,y", "y", "bc"]) == {
        "one": {"a", "b"}, "two": {"x,y", "y"}, "none": frozenset(),
    }  # fmt: skip


def test_what_is_no_model_is_said():
    spec = inspect_model(MODEL)
    with pytest.raises(EngineError, match=r"traffic\.onnx"):
        CpuNodeMeter(spec, [], content=b"no model", rows=1, cores=1).measure()


def test_the_kind_measures_its_machine():
    kind = load_kind("openvino")
    assert isinstance(kind, MeasuringKind)
    first, second = (kind.roof_meter(cores=1).measure() for _ in range(2))

    both = first.with_rounds_of(second)
    assert all(1e9 < rate.best < 1e14 for rate in both.peaks.values())
    assert [one.size_bytes for one in both.sets] == sorted(one.size_bytes for one in both.sets)
    assert both.sets[0].size_bytes <= 32 << 10
    assert both.sets[-1].size_bytes >= 128 << 20
    assert 1e8 < both.bytes_per_s <= both.bandwidth(1024) < 1e13
    assert 0.1 < both.cpu_share < 1.2
    assert both.processor
