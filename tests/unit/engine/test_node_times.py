"""What all nodes of a compiled model take, of the demo's model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.engine.kind import load_kind
from edge.engine.measuring import MeasuringKind
from edge.engine.openvino.node_times import CpuNodeMeter, _is_enough, _of_block, names_in_nodes
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


def test_each_block_is_the_mean_of_its_own_runs_without_the_first_that_are_slow():
    """OpenVINO's means are of all runs so far: 3 of 10 us, then 9 of 2 us are 4 us on the average."""
    (taken,) = _of_block({"a": 10e-6}, {"a": 4e-6}, 9).values()

    assert taken == pytest.approx(2e-6 + 0.5e-6)  # half a microsecond is cut off on the average
    assert _of_block({}, {"a": 3e-6}, 9)["a"] == pytest.approx(4.5e-6)  # too short to be seen at first


@pytest.mark.parametrize(
    ("runs", "spent_s", "is_enough"),
    [(16, 0.5, True), (15, 1.9, False), (100, 0.4, False), (4, 2.0, True), (3, 60.0, False)],
)
def test_a_block_of_long_runs_has_few_of_them(runs, spent_s, is_enough):
    """A batch of eight frames may take a second: sixteen of them in each of six blocks would be minutes."""
    assert _is_enough(runs, spent_s) is is_enough


def test_runs_beside_threads_that_want_the_core_are_counted_as_interrupted(meter):
    """Twice as many busy threads as cores, for the length of a block: no run is left alone."""
    spec = inspect_model(MODEL)
    crowded = CpuNodeMeter(spec, [], content=MODEL.read_bytes(), rows=1, cores=1)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        crowded.measure()
    finally:
        for one in others:
            one.kill()
            one.wait()

    assert 0 <= meter.interrupted <= 1
    assert crowded.interrupted > 0.2


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
