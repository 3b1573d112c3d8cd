"""Accounts of Q/DQ models: pairs are folded, what moves values moves bytes, what is kept in float counts as such."""

import numpy as np
import pytest

from edge.model.account import account_of_model
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq, quantizable_tensors
from edge.types import Precision
from tests.support.models import Net, yolov5, yolov8, yolox

SIZE = 96


def in_int8(path, *, keep_float=(), batch=1):
    spec, graph = inspect_model(path), load_graph(path)
    ranges = dict.fromkeys(quantizable_tensors(graph), 1.0)
    made = insert_qdq(graph, spec, ranges=ranges, keep_float=keep_float)
    return (
        spec,
        graph,
        account_of_model(graph_from_bytes(made.model, "made"), spec, batch=batch, float_type=Precision.FP16),
    )


@pytest.mark.parametrize("make", [yolov5, yolov8, yolox])
def test_the_layers_are_those_of_the_float_model(make, tmp_path):
    spec, graph, quantized = in_int8(make(tmp_path / "tiny.onnx"), batch=2)
    exact = account_of_model(graph, spec, batch=2, float_type=Precision.FP16)

    assert [layer.fused for layer in quantized.layers] == [layer.fused for layer in exact.layers]
    assert quantized.operations == exact.operations
    assert quantized.parameters == exact.parameters
    assert exact.precision is Precision.FP16
    assert quantized.precision is Precision.INT8
    assert all(one.moved_bytes <= other.moved_bytes for one, other in zip(quantized.layers, exact.layers, strict=True))


def test_a_convolution_reads_weights_and_activations_in_one_byte_and_its_bias_in_four(tmp_path):
    _, _, account = in_int8(yolov8(tmp_path / "tiny.onnx"))
    first, second = account.layers[:2]

    assert first.fused == second.fused == ("Conv", "Sigmoid", "Mul")
    assert (first.precision, second.precision) == (Precision.INT8, Precision.INT8)
    assert (first.read_bytes, first.written_bytes) == (3 * SIZE * SIZE, 8 * 48 * 48)
    assert second.weight_bytes == 8 * 8 * 9 + 4 * 8
    assert (second.read_bytes, second.written_bytes) == (8 * 48 * 48, 8 * 24 * 24)
    assert second.intensity == second.shape.intensity(1, Precision.INT8)


def test_a_residual_add_reads_both_in_int8(tmp_path):
    _, _, account = in_int8(yolov8(tmp_path / "tiny.onnx"))
    add = next(layer for layer in account.layers if layer.fused[-1] == "Add" and layer.op_type == "Conv")

    assert add.read_bytes == 8 * 12 * 12  # the same tensor, multiplied and added
    assert add.written_bytes == 8 * 12 * 12


def test_a_layer_kept_in_float_counts_as_such_and_so_does_what_it_reads(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")
    second = load_graph(path).nodes[3].name
    assert load_graph(path).nodes[3].op_type == "Conv"
    _, _, whole = in_int8(path)
    _, _, kept = in_int8(path, keep_float=[second])

    assert kept.layers[1].precision is Precision.FP16
    assert kept.layers[1].weight_bytes == 2 * (8 * 8 * 9 + 8)
    assert kept.layers[1].read_bytes == 2 * whole.layers[1].read_bytes
    assert kept.layers[0].written_bytes == 2 * whole.layers[0].written_bytes
    assert kept.layers[1].written_bytes == whole.layers[1].written_bytes  # read in INT8 all the same
    assert kept.layers[2:] == whole.layers[2:]


def test_pools_resizes_and_joins_between_int8_layers_are_in_int8(tmp_path):
    _, _, account = in_int8(_moving(tmp_path / "moving.onnx"))
    moved = {layer.op_type: layer for layer in account.layers if layer.op_type in ("MaxPool", "Resize")}

    assert set(moved) == {"MaxPool", "Resize"}
    assert all(layer.precision is Precision.INT8 for layer in moved.values())
    assert moved["MaxPool"].read_bytes == moved["MaxPool"].written_bytes == 8 * 12 * 12
    assert moved["Resize"].written_bytes == 8 * 24 * 24


def test_a_pool_that_float_reads_stays_in_float(tmp_path):
    path = _moving(tmp_path / "moving.onnx")
    reader = next(node for node in load_graph(path).nodes if node.name.startswith("reads_pool"))
    _, _, account = in_int8(path, keep_float=[reader.name])
    pool = next(layer for layer in account.layers if layer.op_type == "MaxPool")

    assert pool.precision is Precision.FP16
    assert pool.read_bytes == 2 * 8 * 12 * 12


def test_a_concat_that_copies_between_int8_layers_copies_single_bytes(tmp_path):
    _, _, account = in_int8(_moving(tmp_path / "moving.onnx", is_joined_twice=True))
    join = next(layer for layer in account.layers if layer.op_type == "Concat")

    assert join.precision is Precision.INT8
    assert join.read_bytes == join.written_bytes == 8 * 12 * 12


def _moving(path, *, is_joined_twice=False):
    """A YOLOv8 whose first level goes through a pool, and through a Resize and a Concat, to two convolutions."""
    from tests.support.models import yolov8_head

    net = Net(SIZE)
    plain = net.levels

    def levels():
        first, *others = plain()
        pooled = net.op("MaxPool", first, kernel_shape=[5, 5], pads=[2] * 4)
        weight = net.const(np.ones((8, 8, 1, 1)))
        low = net.op("Conv", pooled, weight, name="reads_pool")
        grown = net.op("Resize", first, "", net.const([1, 1, 2, 2]), mode="nearest")
        high = net.op("Conv", grown, net.const(np.ones((8, 8, 2, 2))), strides=[2, 2])
        joined = net.conv(net.op("Concat", low, high, axis=1), 16, 8)
        if is_joined_twice:
            joined = net.conv(net.op("Concat", joined, high, axis=1), 16, 8)
        return [joined, *others]

    net.levels = levels
    boxes, scores = yolov8_head(net, 3)
    net.op("Concat", boxes, scores, name="output0", axis=1)
    return net.save(path, {"output0": (7, net.cells())})


def test_a_tensor_that_one_reads_in_int8_and_another_in_float_is_written_in_both(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")
    graph = load_graph(path)
    logits = next(node for node in graph.nodes if node.op_type == "Conv" and _channels(graph, node) == 3)
    _, _, account = in_int8(path, keep_float=[logits.name])
    feature = next(layer for layer in account.layers if layer.fused[-1] == "Add" and layer.op_type == "Conv")

    assert feature.written_bytes == (1 + 2) * 8 * 12 * 12


def _channels(graph, node):
    return graph.initializer_shape(node.inputs[1])[0]
