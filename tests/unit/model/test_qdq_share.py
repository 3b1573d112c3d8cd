"""The share of INT8 is counted in the Q/DQ model itself, as the placement that made it counts."""

import onnx
import pytest

from edge.model.graph import graph_from_bytes, load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import int8_mac_share
from tests.support import models
from tests.support.qdq import quantized


@pytest.mark.parametrize("build", [models.yolov5, models.yolov8, models.yolov10])
@pytest.mark.parametrize("kept", [0, 2])
def test_share_of_a_model_that_we_quantized(tmp_path, build, kept):
    path = build(tmp_path / "m.onnx", batch=1)
    made = quantized(path, keep_float=quantized(path).quantized_nodes[:kept])

    share = int8_mac_share(graph_from_bytes(made.model, "test"), inspect_model(path))

    assert share == made.mac_share_int8
    assert (share < 1) == (kept > 0)


def test_a_float_model_has_none(tmp_path):
    path = models.yolov8(tmp_path / "m.onnx")

    assert int8_mac_share(load_graph(path), inspect_model(path)) == 0


def test_weights_alone_in_int8_do_not_count(tmp_path):
    path = models.yolov8(tmp_path / "m.onnx", batch=1)
    model = onnx.load_model_from_string(quantized(path).model)
    source = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }
    for node in model.graph.node:
        if node.op_type == "Conv":
            node.input[0] = source[source[node.input[0]]]

    assert int8_mac_share(graph_from_bytes(model.SerializeToString(), "test"), inspect_model(path)) == 0
