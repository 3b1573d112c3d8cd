"""Which operators the account has in one layer, against what OpenVINO has made one node of."""

from pathlib import Path

import openvino as ov
import pytest

from edge.model.account import Flow, Fuser
from edge.model.cost import resolved_for_one
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from tests.support import models

pytestmark = pytest.mark.slow(reason="further figures of this machine")

DEMO = Path(__file__).parents[2] / "edge/demo/model/traffic.onnx"


def nodes_of_openvino(path):
    """The names of operators that went into each node which OpenVINO executes."""
    core = ov.Core()
    model = core.read_model(path)
    if model.input().get_partial_shape()[0].is_dynamic:
        model.reshape([1, *model.input().get_partial_shape().get_max_shape()[1:]])
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        if "originalLayersNames" in info:
            yield set(str(info["originalLayersNames"].astype(str)).split(","))


@pytest.mark.parametrize("make", [lambda _: DEMO, lambda folder: models.yolov5(folder / "m.onnx")])
def test_a_convolution_and_its_activation_are_one_node_of_an_engine(make, tmp_path):
    path = make(tmp_path)
    nodes = list(nodes_of_openvino(path))
    layers = Fuser(Flow(resolved_for_one(load_graph(path), inspect_model(path)))).layers
    checked = 0
    for layer in layers:
        if layer[0].op_type != "Conv" or len(layer) == 1:
            continue
        # Its Swish keeps the name of the Mul alone. Behind an activation it does not take a residual sum in, as
        # TensorRT does.
        names = {node.name for node in layer if node.op_type not in ("Sigmoid", "Add")}
        assert any(names <= node for node in nodes), names
        checked += 1
    assert checked >= 5
