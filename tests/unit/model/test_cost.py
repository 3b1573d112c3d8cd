"""Costs against sums worked by hand."""

from edge.model import cost as room
from edge.model.cost import cost_for_one, cost_of_model, resolved_for_one
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq, quantizable_tensors
from tests.support.models import yolov8


def _nodes(path):
    spec = inspect_model(path)
    cost = cost_of_model(resolved_for_one(load_graph(path), spec), spec)
    return cost, {node.output: node for node in cost.nodes}


def test_first_convolutions_by_hand(tmp_path):
    cost, _ = _nodes(yolov8(tmp_path / "tiny.onnx"))
    first, second = cost.nodes[0], cost.nodes[1]

    assert first.macs == 48 * 48 * 8 * 3 * 3 * 3
    assert first.parameters == 8 * 3 * 3 * 3 + 8
    assert second.macs == 24 * 24 * 8 * 8 * 3 * 3
    assert cost.macs == sum(node.macs for node in cost.nodes)
    assert cost.parameters == sum(node.parameters for node in cost.nodes)


def test_what_a_graph_costs_is_worked_out_once_for_a_size(tmp_path, monkeypatch):
    path = yolov8(tmp_path / "tiny.onnx")
    spec, graph = inspect_model(path), load_graph(path)
    asked = []
    resolve = room.resolve
    monkeypatch.setattr(room, "resolve", lambda *args: (asked.append(args[1]), resolve(*args))[1])
    ranges = dict.fromkeys(quantizable_tensors(graph), 1.0)

    shares = {insert_qdq(graph, spec, ranges=ranges, keep_float=kept).mac_share_int8 for kept in ((), ("Conv_0",), ())}

    assert len(shares) == 2
    assert asked == [(1, 3, 96, 96)]
    assert cost_for_one(load_graph(path), spec) == cost_for_one(graph, spec)
    assert len(asked) == 2


def test_depthwise_convolutions_are_told(tmp_path):
    cost, _ = _nodes(yolov8(tmp_path / "tiny.onnx"))

    assert len(cost.depthwise) == 3
    assert cost.depthwise[0].macs == 12 * 12 * 8 * 3 * 3
    assert not cost.nodes[0].is_depthwise


def test_cost_is_of_one_frame_whatever_the_batch(tmp_path):
    single, _ = _nodes(yolov8(tmp_path / "one.onnx", batch=1))
    several, _ = _nodes(yolov8(tmp_path / "four.onnx", batch=4))
    dynamic, _ = _nodes(yolov8(tmp_path / "any.onnx"))

    assert single.macs == several.macs == dynamic.macs
    assert single.parameters == several.parameters == dynamic.parameters
