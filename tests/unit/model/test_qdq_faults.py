"""Q/DQ pairs that give no detections, and those that TensorRT does not take: each named with its node."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import QuantType

from edge.errors import ModelError
from edge.model.graph import graph_of_proto, load_graph
from edge.model.inspect import inspect_model
from edge.model.obstacles import report_on_model
from edge.model.qdq import qdq_faults, require_sound_pairs
from tests.support.models import Net, yolov5, yolov8, yolov10, yolox
from tests.support.tables import (
    pair_of,
    pictures,
    quantized,
    run,
    set_axis,
    square_weight,
    store,
    stored,
    with_joint_scale,
)
from tests.unit.model.test_qdq_read import SYMMETRIC, by_onnxruntime

FAMILIES = [yolov5, yolov8, yolox, yolov10]


def with_pairs(tmp_path, build=yolov8, **words):
    return onnx.load_model_from_string(quantized(build(tmp_path / "float.onnx", batch=1), **words).model)


def faults(model):
    return qdq_faults(graph_of_proto(model, "test"))


@pytest.mark.parametrize("words", [{}, {"has_float_weights": True}], ids=["stored weights", "float weights"])
@pytest.mark.parametrize("build", FAMILIES)
def test_our_own_pairs_have_none(tmp_path, build, words):
    assert faults(with_pairs(tmp_path, build, **words)) == ()
    assert qdq_faults(load_graph(tmp_path / "float.onnx")) == ()


def with_scale(value):
    def change(model):
        store(model, "images/scale", np.float32(value))
        return "images/QuantizeLinear", "finite and above 0"

    return change


def with_weight_scale_0(model):
    node, _ = square_weight(model)
    scales = stored(model)[node.input[1]].copy()
    scales[1] = 0
    store(model, node.input[1], scales)
    return node.name, "finite and above 0"


def with_lacking_scales(model):
    node, _ = square_weight(model)
    for index in (1, 2):
        store(model, node.input[index], stored(model)[node.input[index]][:-1])
    return node.name, "a scale for each channel"


def with_joint_output(model):
    with_joint_scale(model)
    return "joint_quantize", "wider than half a score"


@pytest.mark.parametrize(
    "change",
    [*map(with_scale, (0, -0.01, np.inf, np.nan)), with_weight_scale_0, with_lacking_scales, with_joint_output],
    ids=["0", "negative", "infinite", "no number", "of a weight", "too few", "boxes and scores"],
)
@pytest.mark.parametrize("build", [yolov8, yolov5])
def test_pairs_that_give_no_detections_are_refused(tmp_path, build, change):
    model = with_pairs(tmp_path, build)
    node, word = change(model)

    (found,) = (one for one in faults(model) if one.is_fatal)

    assert word in found.problem
    assert f'"{node}"' in found.nodes[0]
    with pytest.raises(ModelError, match=node):
        require_sound_pairs(graph_of_proto(model, "test"), tmp_path)


def test_a_joint_scale_that_scores_live_through_is_none(tmp_path):
    """Boxes as shares of the picture have the range of scores."""
    model = with_pairs(tmp_path)
    with_joint_scale(model, level=1 / 127)

    assert faults(model) == ()


def with_uint8(model):
    store(model, "images/zero_point", np.uint8(0))
    return "images/QuantizeLinear", "uint8"


def with_16_bit(model):
    model.opset_import[0].version = 21
    store(model, "images/zero_point", np.int16(0))
    return "images/QuantizeLinear", "int16"


def with_zero_point(model):
    store(model, "images/zero_point", np.int8(-3))
    return "images/QuantizeLinear", "zero point is not 0"


def without_zero_point(model):
    for node in pair_of(model, "images"):
        del node.input[2]
    return "images/QuantizeLinear", "states no zero point"


def with_activation_channels(model):
    store(model, "images/scale", np.full(3, stored(model)["images/scale"]))
    store(model, "images/zero_point", np.zeros(3, np.int8))
    for node in pair_of(model, "images"):
        set_axis(node, 1)
    return "images/QuantizeLinear", "a scale for each channel"


def with_other_axis(model):
    node, _ = square_weight(model)
    set_axis(node, 1)
    return node.name, "on axis 1, the output channels of Conv on axis 0"


def with_stored_bias(model):
    values = stored(model)
    conv = next(node for node in model.graph.node if node.op_type == "Conv" and len(node.input) == 3)
    store(model, "bias_levels", np.rint(values[conv.input[2]] / 1e-4).astype(np.int32))
    store(model, "bias_scale", np.float32(1e-4))
    conv.input[2] = "bias"
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["bias_levels", "bias_scale"], ["bias"], "restore"))
    return "restore", "int32"


def with_integers_read(model):
    quantize, dequantize = pair_of(model, "images")
    for node in model.graph.node:
        node.input[:] = [quantize.output[0] if name == dequantize.output[0] else name for name in node.input]
    return "images/QuantizeLinear", "Conv reads its integers"


def with_blocks(model):
    model.opset_import[0].version = 21
    node, weight = square_weight(model)
    out, into = weight.shape[:2]
    shape = (out, into // 2, *weight.shape[2:])
    store(model, node.input[1], np.ones(shape, np.float32))
    store(model, node.input[2], np.zeros(shape, np.int8))
    set_axis(node, 1)
    node.attribute.append(helper.make_attribute("block_size", 2))
    return node.name, "of blocks"


NOT_FOR_TENSORRT = [
    with_uint8,
    with_16_bit,
    with_zero_point,
    without_zero_point,
    with_activation_channels,
    with_other_axis,
    with_stored_bias,
    with_integers_read,
    with_blocks,
]


@pytest.mark.parametrize("change", NOT_FOR_TENSORRT)
def test_pairs_that_tensorrt_does_not_take_are_obstacles(tmp_path, change):
    model = with_pairs(tmp_path)
    node, word = change(model)

    (found,) = faults(model)

    assert word in found.problem
    assert f'"{node}"' in found.nodes[0]
    assert len(found.nodes) == 1  # a pair once
    assert not found.is_fatal


def test_the_right_axis_may_be_counted_from_the_end(tmp_path):
    model = with_pairs(tmp_path)
    node, weight = square_weight(model)
    set_axis(node, -weight.ndim)

    assert faults(model) == ()


def test_a_type_that_only_the_node_states_counts(tmp_path):
    """From opset 21 on `output_dtype` takes the place of a zero point."""
    model = with_pairs(tmp_path)
    model.opset_import[0].version = 21
    without_zero_point(model)
    pair_of(model, "images")[0].attribute.append(helper.make_attribute("output_dtype", onnx.TensorProto.INT8))

    assert faults(model) == ()


@pytest.mark.parametrize(
    ("build", "scores"),
    [(yolov5, np.s_[:, :, 4:]), (yolov8, np.s_[:, 4:]), (yolov10, np.s_[:, :, 4])],
    ids=["yolov5", "yolov8", "yolov10"],
)
@pytest.mark.parametrize("options", [SYMMETRIC, {"activation_type": QuantType.QUInt8}], ids=["int8", "uint8"])
def test_what_onnxruntime_makes_of_a_detector_by_default_erases_scores(tmp_path, build, scores, options):
    """Boxes of 160 pixels and scores in one Concat: run there, at most 0, 1 and 2 levels are left of all scores."""
    path, feed = build(tmp_path / "float.onnx", batch=1, size=160), pictures(size=160)
    source = by_onnxruntime(path, feed, **options)
    kept, exact = (np.unique(run(one.read_bytes(), feed)["output0"][scores]) for one in (source, path))
    assert len(kept) <= 3 < len(exact)

    obstacles = report_on_model(inspect_model(source)).obstacles

    (told,) = (one for one in obstacles if "half a score" in one)
    assert told.startswith('QuantizeLinear "')
    assert not any("stays in float" in one for one in obstacles)


def test_boxes_that_are_cut_out_of_what_holds_scores_may_have_wide_levels(tmp_path):
    net = Net(32, batch=1)
    boxes, scores = net.conv(net.image, 3, 4), net.op("Sigmoid", net.conv(net.image, 3, 2))
    joined = net.op("Concat", boxes, scores, axis=1)
    parts = net.ops("Split", joined, net.ints(4, 2), count=2, axis=1)
    made = []
    for part, level in zip(parts, (5.0, 1 / 127), strict=True):
        operands = net.const(level), net.const(0, np.int8)
        made.append(net.op("DequantizeLinear", net.op("QuantizeLinear", part, *operands), *operands))
    net.op("Concat", *made, name="output0", axis=1)
    graph = load_graph(net.save(tmp_path / "cut.onnx", {"output0": (6, 32, 32)}))

    assert qdq_faults(graph) == ()
