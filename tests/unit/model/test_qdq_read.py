"""Ranges and a float model out of Q/DQ models: our own, ONNX Runtime's, and those with NVIDIA's placement."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from edge.errors import ModelError
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq, read_qdq
from tests.support.models import Net, yolov5, yolov8, yolov10, yolox
from tests.support.tables import (
    csp,
    minmax,
    one_operator,
    pair_of,
    pairs,
    pictures,
    quantized,
    run,
    spec_of,
    store,
    stored,
)


class OnePicture(CalibrationDataReader):
    def __init__(self, feed):
        self._feeds = iter([feed])

    def get_next(self):
        return next(self._feeds, None)


def by_onnxruntime(path, feed, **options):
    quantize_static(
        str(path), str(path.with_name("ort.onnx")), OnePicture(feed), quant_format=QuantFormat.QDQ, per_channel=True,
        weight_type=QuantType.QInt8, calibration_providers=["CPUExecutionProvider"], **options,
    )  # fmt: skip
    return path.with_name("ort.onnx")


SYMMETRIC = {
    "activation_type": QuantType.QInt8,
    "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
}


def assert_same_model(path, float_model, *, feed):
    """Weights have been through int8: the float model is as near as they are."""
    ours = run(float_model, feed)
    for name, value in run(path.read_bytes(), feed).items():
        np.testing.assert_allclose(ours[name], value, atol=0.05 * np.abs(value).max())
    assert not {node.op_type for node in onnx.load_model_from_string(float_model).graph.node} & {
        "QuantizeLinear", "DequantizeLinear"
    }  # fmt: skip


@pytest.mark.parametrize("build", [yolov5, yolov8, yolox, yolov10])
def test_our_own_model_comes_back_and_goes_again(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()
    spec = inspect_model(path)
    kept = [node.name for node in load_graph(path).nodes if node.op_type in ("Conv", "Add")][-4:]
    first = quantized(path, feed, keep_float=kept)
    (tmp_path / "quantized.onnx").write_bytes(first.model)

    ranges, float_model, keep_float = read_qdq(tmp_path / "quantized.onnx")
    second = insert_qdq(graph_from_bytes(float_model, "float"), spec, ranges=ranges, keep_float=keep_float)

    assert {name: pytest.approx(amax) for name, amax in first.ranges.items() if name in ranges} == ranges
    assert (second.quantized_nodes, second.float_nodes) == (first.quantized_nodes, first.float_nodes)
    assert pairs(second.model) == pairs(first.model)
    for name, value in run(first.model, feed).items():
        np.testing.assert_allclose(run(second.model, feed)[name], value, rtol=1e-3, atol=1e-3)


def test_neck_with_shared_scales_comes_back_and_goes_again(tmp_path):
    path = tmp_path / "csp.onnx"
    csp(path)
    first = quantized(path, spec=spec_of(path))
    (tmp_path / "quantized.onnx").write_bytes(first.model)

    ranges, float_model, keep_float = read_qdq(tmp_path / "quantized.onnx")
    second = insert_qdq(graph_from_bytes(float_model, "float"), spec_of(path), ranges=ranges, keep_float=keep_float)

    assert keep_float == ()
    assert pairs(second.model) == pairs(first.model)


def test_symmetric_model_of_onnxruntime_is_read(tmp_path):
    """Its ranges are the largest absolute values that its calibrator saw."""
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    t = csp(path)
    seen = minmax(path, feed)

    ranges, float_model, keep_float = read_qdq(by_onnxruntime(path, feed, **SYMMETRIC))

    assert keep_float == ()
    assert_same_model(path, float_model, feed=feed)
    for name in ("images", t["stem"], t["cv1"], t["add"], t["lateral"]):
        assert ranges[name] == pytest.approx(seen[name], rel=0.01)


def test_asymmetric_model_of_onnxruntime_is_read(tmp_path):
    """uint8 with zero points and int32 biases: the range is the farther end."""
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    t = csp(path)
    seen = minmax(path, feed)

    ranges, float_model, keep_float = read_qdq(by_onnxruntime(path, feed, activation_type=QuantType.QUInt8))

    assert keep_float == ()
    assert_same_model(path, float_model, feed=feed)
    for name in ("images", t["stem"], t["cv1"], t["add"]):
        assert ranges[name] == pytest.approx(seen[name], rel=0.02)
    insert_qdq(graph_from_bytes(float_model, "float"), spec_of(path), ranges=ranges, keep_float=())


def test_relu_that_onnxruntime_leaves_out_comes_back(tmp_path):
    net = Net(32, batch=1)
    net.op("Sigmoid", net.conv(net.op("Relu", net.conv(net.image, 3, 8)), 8, 2), name="output0")
    path, feed = net.save(tmp_path / "relu.onnx", {"output0": (2, 32, 32)}), pictures(size=32)
    source = by_onnxruntime(path, feed, activation_type=QuantType.QUInt8)
    assert "Relu" not in {node.op_type for node in onnx.load(source).graph.node}

    _, float_model, _ = read_qdq(source)

    assert_same_model(path, float_model, feed=feed)


def test_nodes_that_onnxruntime_left_in_float_are_kept(tmp_path):
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    t = csp(path)

    _, _, keep_float = read_qdq(
        by_onnxruntime(path, feed, op_types_to_quantize=["Conv"], nodes_to_exclude=[t["head"]], **SYMMETRIC)
    )

    assert t["head"] in keep_float
    assert set(keep_float) <= {t["head"], t["add"]}


def nvidia_style(path):
    """Float weights with a pair, and a pair of its own in front of each convolution, as NVIDIA's toolkits export."""
    net = Net(32, batch=1, seed=2)

    def pair(x, scale, axis=None):
        operands = x, net.const(scale), net.const(np.zeros(np.shape(scale)), np.int8)
        more = {} if axis is None else {"axis": axis}
        return net.op("DequantizeLinear", net.op("QuantizeLinear", *operands, **more), *operands[1:], **more)

    def conv(x, out, scale):
        weight = np.random.default_rng(out).normal(0, 1, (out, 3, 1, 1)).astype(np.float32)
        stored = pair(net.const(weight), (np.abs(weight).max((1, 2, 3)) / 127).astype(np.float32), axis=0)
        return net.op("Conv", pair(x, scale), stored, kernel_shape=[1, 1]), weight

    left, first = conv(net.image, 2, 2 / 127)
    right, second = conv(net.image, 4, 1 / 127)
    net.op("Concat", left, right, name="output0", axis=1)
    return net.save(path, {"output0": (6, 32, 32)}), np.concatenate([first, second])


def test_model_with_nvidias_placement_is_read(tmp_path):
    path, weights = nvidia_style(tmp_path / "nvidia.onnx")
    feed = pictures(size=32)

    ranges, float_model, keep_float = read_qdq(path)

    assert ranges == {"images": pytest.approx(2.0)}
    assert keep_float == ()
    expected = np.einsum("oc,bchw->bohw", weights[:, :, 0, 0], feed["images"])
    np.testing.assert_allclose(run(float_model, feed)["output0"], expected, atol=1e-5)


def test_asymmetric_pair_gives_its_farther_end(tmp_path):
    """0.1 x (0 - 200) to 0.1 x (255 - 200); and int8 without a zero point counts to 127, not to 128."""
    for point, kind, expected in (
        (200, np.uint8, 20.0),
        (20, np.uint8, 23.5),
        (0, np.int8, 12.7),
        (-28, np.int8, 15.5),
    ):
        net = Net(32, batch=1)
        operands = net.const(0.1), net.const(point, kind)
        net.op("DequantizeLinear", net.op("QuantizeLinear", net.image, *operands), *operands, name="read")
        net.op("Relu", "read", name="output0")
        path = net.save(tmp_path / "pair.onnx", {"output0": (3, 32, 32)})

        ranges, _, _ = read_qdq(path)

        assert ranges == {"images": pytest.approx(expected)}


def test_weights_with_zero_points_are_restored(tmp_path):
    net = Net(32, batch=1)
    stored = np.array([[0, 130, 255], [128, 100, 7]], np.uint8).reshape(2, 3, 1, 1)
    operands = net.const([0.5, 0.25]), net.const([128, 100], np.uint8)
    weight = net.op("DequantizeLinear", net.const(stored, np.uint8), *operands, axis=0)
    pair = net.const(0.1), net.const(0, np.int8)
    image = net.op("DequantizeLinear", net.op("QuantizeLinear", net.image, *pair), *pair)
    net.op("Conv", image, weight, name="output0", kernel_shape=[1, 1])
    path = net.save(tmp_path / "weights.onnx", {"output0": (2, 32, 32)})

    _, float_model, _ = read_qdq(path)

    (weight,) = (numpy_helper.to_array(x) for x in onnx.load_model_from_string(float_model).graph.initializer)
    assert weight.reshape(2, 3).tolist() == [[-64.0, 1.0, 63.5], [7.0, 0.0, -23.25]]


@pytest.mark.parametrize("kind", [np.int16, np.uint16])
def test_other_widths_are_refused(tmp_path, kind):
    path, _ = nvidia_style(tmp_path / "nvidia.onnx")
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), tensor.name))
    proto.opset_import[0].version = 21
    path.write_bytes(proto.SerializeToString())

    with pytest.raises(ModelError, match=f"expected int8 or uint8, got {np.dtype(kind)}"):
        read_qdq(path)


def test_activation_with_a_scale_for_each_channel_is_refused(tmp_path):
    net = Net(32, batch=1)
    operands = net.const([0.1, 0.2, 0.3]), net.const([0, 0, 0], np.int8)
    net.op("DequantizeLinear", net.op("QuantizeLinear", net.image, *operands), *operands, name="output0")
    path = net.save(tmp_path / "channels.onnx", {"output0": (3, 32, 32)})

    with pytest.raises(ModelError, match="one stored scale for an activation"):
        read_qdq(path)


def test_integers_that_stay_integers_are_refused(tmp_path):
    net = Net(32, batch=1)
    scale, zero = net.const(0.1), net.const(0, np.int8)
    whole = net.op("Transpose", net.op("QuantizeLinear", net.image, scale, zero), perm=[0, 1, 3, 2])
    net.op("DequantizeLinear", whole, scale, zero, name="output0")
    path = net.save(tmp_path / "moved.onnx", {"output0": (3, 32, 32)})

    with pytest.raises(ModelError, match="expected a DequantizeLinear behind it, got Transpose"):
        read_qdq(path)


@pytest.mark.parametrize(("kind", "inputs"), [("ConvInteger", ["q", "w"]), ("QLinearAdd", ["q", "s", "z"] * 2 + ["s"])])
def test_integer_operators_are_refused(tmp_path, kind, inputs):
    path = one_operator(tmp_path / "one.onnx", "MatMul", weight=np.eye(6))
    proto = onnx.load(path)
    domain = "com.microsoft" if kind == "QLinearAdd" else ""
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.node.append(helper.make_node("QuantizeLinear", ["images", "s", "z"], ["q"]))
    proto.graph.node.append(helper.make_node(kind, inputs, ["unused"], domain=domain))
    proto.graph.initializer.extend(
        numpy_helper.from_array(value, name)
        for name, value in (("s", np.float32(0.1)), ("z", np.int8(0)), ("w", np.ones((1, 4, 1, 1), np.int8)))
    )
    path.write_bytes(proto.SerializeToString())

    with pytest.raises(ModelError, match=f"integer operators: {kind}"):
        read_qdq(path)


def test_float_model_is_refused(tmp_path):
    csp(tmp_path / "csp.onnx")

    with pytest.raises(ModelError, match="expected Q/DQ nodes, got a float model"):
        read_qdq(tmp_path / "csp.onnx")


def test_quantized_output_keeps_its_name(tmp_path):
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    csp(path)

    _, float_model, _ = read_qdq(by_onnxruntime(path, feed, **SYMMETRIC))

    assert [value.name for value in onnx.load_model_from_string(float_model).graph.output] == ["output0"]


def prequantized(model, *, scale=1.0):
    """Store weights as whole numbers in float: Q only makes integers of them, DQ has their scale."""
    values, count = stored(model), 0
    store(model, "one", np.float32(scale))
    store(model, "no_offset", np.int8(0))
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in values:
            weight, scales, axis = values[node.input[0]], values[node.input[1]], node.attribute[0].i
            spread = scales.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
            store(model, node.input[0], (np.rint(weight / spread) * scale).astype(np.float32))
            node.input[1:] = ["one", "no_offset"]
            del node.attribute[:]
            count += 1
    assert count > 10


@pytest.fixture
def with_float_weights(tmp_path):
    made = quantized(yolov8(tmp_path / "float.onnx", batch=1), has_float_weights=True)
    return onnx.load_model_from_string(made.model)


def read(model, tmp_path):
    (tmp_path / "brought.onnx").write_bytes(model.SerializeToString())
    return read_qdq(tmp_path / "brought.onnx")


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_weights_that_are_whole_numbers_get_their_scale_back(tmp_path, with_float_weights, scale):
    """NVIDIA's form of a model that is quantized already: ONNX Runtime finds the same in it as in the usual one."""
    usual = with_float_weights.SerializeToString()
    prequantized(with_float_weights, scale=scale)
    brought = with_float_weights.SerializeToString()
    np.testing.assert_allclose(run(brought, pictures())["output0"], run(usual, pictures())["output0"], atol=1e-3)

    ranges, float_model, kept = read(with_float_weights, tmp_path)

    assert_same_model(tmp_path / "float.onnx", float_model, feed=pictures())
    assert kept == ()
    assert len(ranges) > 5


@pytest.mark.parametrize("build", [yolov5, yolov8])
@pytest.mark.parametrize("opset", [13, 19, 21])
def test_scales_in_nodes_of_their_own_and_newer_opsets_change_nothing(tmp_path, build, opset):
    model = onnx.load_model_from_string(quantized(build(tmp_path / "float.onnx", batch=1)).model)
    expected = read(model, tmp_path)
    scales = [one for one in model.graph.initializer if one.name.endswith(("/scale", "/zero_point"))]
    for one in scales:
        model.graph.initializer.remove(one)
        model.graph.node.insert(0, helper.make_node("Constant", [], [one.name], value=one))
    if opset == 21:
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear":
                del node.input[2]
                node.attribute.append(helper.make_attribute("output_dtype", onnx.TensorProto.INT8))
    model.opset_import[0].version = opset

    ranges, float_model, kept = read(model, tmp_path)

    assert (ranges, kept) == (expected[0], expected[2])
    mine, theirs = (run(one, pictures())["output0"] for one in (float_model, expected[1]))
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)


def with_other_scale(model):
    """Q and DQ of an activation have different ones."""
    store(model, "other", stored(model)["images/scale"] * 2)
    pair_of(model, "images")[1].input[1] = "other"


def with_other_zero_point(model):
    store(model, "other", np.int8(1))
    pair_of(model, "images")[1].input[2] = "other"


def with_negative_scale(model):
    store(model, "images/scale", -stored(model)["images/scale"])


def with_weights_that_are_not_whole(model):
    """As the usual form has them, and yet with a Q of scale 1."""
    node = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0].startswith("const"))
    store(model, "one", np.ones_like(stored(model)[node.input[1]]))
    node.input[1] = "one"


def with_weights_beyond_int8(model):
    prequantized(model)
    node = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0].startswith("const"))
    store(model, node.input[0], stored(model)[node.input[0]] * 2)


def with_scales_of_other_channels(model):
    node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and "const" in n.input[0])
    model.graph.node.remove(next(n for n in model.graph.node if n.output[0] == node.input[0]))
    store(model, node.input[0], np.ones((8, 3, 3, 3), np.int8))
    node.attribute[0].i = 1


@pytest.mark.parametrize(
    "change",
    [
        with_other_scale,
        with_other_zero_point,
        with_negative_scale,
        with_weights_that_are_not_whole,
        with_weights_beyond_int8,
        with_scales_of_other_channels,
    ],
)
def test_pairs_that_contradict_themselves_are_refused(tmp_path, with_float_weights, change):
    change(with_float_weights)

    with pytest.raises(ModelError, match=r"(Quantize|Dequantize)Linear .*: expected"):
        read(with_float_weights, tmp_path)


def test_scales_of_channels_before_opset_13_are_refused(tmp_path):
    """There is no axis that they could be of."""
    net = Net(32, batch=1)
    operands = net.const([0.1, 0.2, 0.3]), net.const([0, 0, 0], np.int8)
    weight = net.op("DequantizeLinear", net.const(np.ones((3, 3, 1, 1)), np.int8), *operands)
    net.op("Conv", net.image, weight, name="output0", kernel_shape=[1, 1])
    path = net.save(tmp_path / "old.onnx", {"output0": (3, 32, 32)}, opset=12)

    with pytest.raises(ModelError, match=r"DequantizeLinear_\d+: expected one scale, or from opset 13"):
        read_qdq(path)


def test_a_scale_for_blocks_is_refused(tmp_path):
    net = Net(32, batch=1)
    values = net.const(np.arange(16).reshape(4, 4, 1, 1), np.int8)
    weight = net.op(
        "DequantizeLinear", values, net.const(np.ones((4, 2, 1, 1))), name="restored", axis=1, block_size=2
    )  # fmt: skip
    net.op("Conv", net.conv(net.image, 3, 4), weight, name="output0", kernel_shape=[1, 1])
    net.op("DequantizeLinear", net.op("QuantizeLinear", net.image, net.const(0.1)), net.const(0.1))
    path = net.save(tmp_path / "blocks.onnx", {"output0": (4, 32, 32)}, opset=21)

    with pytest.raises(ModelError, match=r"DequantizeLinear restored: expected one scale"):
        read_qdq(path)


def test_weights_alone_in_int8_are_read(tmp_path, with_float_weights):
    """A model that only stores its weights so, and computes in float."""
    graph = graph_from_bytes(with_float_weights.SerializeToString(), "test")
    pairs_of_activations = [
        node for node in with_float_weights.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and graph.is_varying(node.input[0])
    ]  # fmt: skip
    before = {node.output[0]: node.input[0] for node in pairs_of_activations}
    for node in pairs_of_activations:
        with_float_weights.graph.node.remove(node)
    for node in with_float_weights.graph.node:
        node.input[:] = [before.get(before.get(name, name), before.get(name, name)) for name in node.input]

    ranges, float_model, _ = read(with_float_weights, tmp_path)

    assert ranges == {}
    assert_same_model(tmp_path / "float.onnx", float_model, feed=pictures())


@pytest.mark.parametrize("opset", [10, 12, 13])
def test_one_scale_for_a_weight_is_read_from_the_oldest_opset_on(tmp_path, opset):
    """Initialisers that several nodes share, and a bias in int32."""
    net = Net(32, batch=1)
    step, point = net.const(0.5), net.const(0, np.int8)
    image = net.op("DequantizeLinear", net.op("QuantizeLinear", net.image, step, point), step, point)
    levels = np.arange(-6, 6).reshape(4, 3, 1, 1)
    weight = net.op("DequantizeLinear", net.const(levels, np.int8), step, point)
    bias = net.op("DequantizeLinear", net.const([4, 8, -4, 0], np.int32), step)
    net.op("Conv", image, weight, bias, name="output0", kernel_shape=[1, 1])
    path, feed = net.save(tmp_path / "old.onnx", {"output0": (4, 32, 32)}, opset=opset), pictures(size=32)

    ranges, float_model, kept = read_qdq(path)

    assert (ranges, kept) == ({"images": pytest.approx(63.5)}, ())
    expected = np.einsum("oc,bchw->bohw", levels[:, :, 0, 0] / 2, feed["images"])
    expected += np.array([2, 4, -2, 0]).reshape(1, 4, 1, 1)
    np.testing.assert_allclose(run(float_model, feed)["output0"], expected, atol=1e-5)
