"""The float16 variant for TensorRT and the uint8 one for OpenVINO compute what the model itself does."""

import numpy as np
import onnx
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge.engine.openvino.binding import why_int8_in_float
from edge.errors import ModelError
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import insert_qdq, quantizable_tensors, with_float_arithmetic, with_uint8_activations
from edge.model.qdq.half import float16_model
from tests.support.models import Net, yolov5, yolov8, yolov10, yolox
from tests.support.tables import before_cast, csp, pairs, pictures, quantized, run, spec_of, store, stored

needs_exact_int8 = pytest.mark.skipif(why_int8_in_float() is not None, reason=str(why_int8_in_float()))
FAMILIES = [yolov5, yolov8, yolox, yolov10]


def kinds(model):
    return [node.op_type for node in onnx.load_model_from_string(model).graph.node]


def element_types(model):
    known = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model), strict_mode=True, check_type=True)
    return {value.name: value.type.tensor_type.elem_type for value in known.graph.value_info}


@pytest.mark.parametrize("build", FAMILIES)
def test_rest_computes_in_float16_and_decoding_in_float32(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx"), pictures()

    half = quantized(path, feed, is_float16=True)

    proto = onnx.load_model_from_string(half.model)
    types = element_types(half.model)
    stored = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Conv":
            assert types[node.input[0]] == types[node.input[1]] == types[node.output[0]] == TensorProto.FLOAT16
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):  # half the digits of a scale would be lost
            assert stored[node.input[1]] == TensorProto.FLOAT
    last = next(node for node in reversed(proto.graph.node) if node.op_type == "Concat")
    assert {types.get(name, TensorProto.FLOAT) for name in last.input} == {TensorProto.FLOAT}
    for value in (*proto.graph.input, *proto.graph.output):
        assert value.type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize("build", [yolov5, yolox])
def test_float16_is_near_float32(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()

    whole, half = quantized(path, feed), quantized(path, feed, is_float16=True)

    assert half.quantized_nodes == whole.quantized_nodes
    expected, value = (next(iter(run(result.model, feed).values())) for result in (whole, half))
    assert value.dtype == np.float32
    assert 0 < np.abs(value - expected).mean() < 0.02 * np.abs(expected).mean()
    assert pairs(half.model) == pairs(whole.model)


def test_a_scale_that_float16_has_no_digits_for_is_kept(tmp_path):
    path = tmp_path / "csp.onnx"
    csp(path)
    ranges = dict.fromkeys(quantizable_tensors(load_graph(path)), 1.0) | {"images": 1e-5}

    made = insert_qdq(path, spec_of(path), ranges=ranges, keep_float=(), is_float16=True)

    (scale,) = {scale for tensor, scale in pairs(made.model).values() if tensor == "images"}
    assert scale == pytest.approx(1e-5 / 127, rel=1e-6)
    assert abs(float(np.float16(scale)) / scale - 1) > 0.1


@pytest.mark.parametrize("build", FAMILIES)
def test_float_models_compute_in_float16_between_float32_input_and_output(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()

    half = float16_model(load_graph(path), "tiny")

    types, graph = element_types(half), graph_from_bytes(half, "half")
    for node in graph.nodes:
        if node.op_type == "Conv":
            assert types[node.inputs[0]] == types[node.outputs[0]] == TensorProto.FLOAT16
            assert graph.dtype(node.inputs[1]) == "float16"
    (expected,), (value,) = (run(model, feed).values() for model in (path.read_bytes(), half))
    assert value.dtype == np.float32
    assert 0 < np.median(np.abs(value - expected)) < 0.01 * np.abs(expected).mean()  # TopK may pick another row


def test_a_model_with_pairs_has_no_plain_float16_form(tmp_path):
    path, feed = yolov8(tmp_path / "tiny.onnx", batch=1), pictures()
    made = quantized(path, feed)

    with pytest.raises(ModelError, match=r"tiny: .*Q/DQ"):
        float16_model(graph_from_bytes(made.model, "tiny"), "tiny")


@pytest.mark.parametrize("is_float16", [False, True])
@pytest.mark.parametrize("build", FAMILIES)
def test_weights_in_float_compute_the_same_bits_as_in_int8(tmp_path, build, is_float16):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()

    in_int8, in_float = (quantized(path, feed, is_float16=is_float16, has_float_weights=has) for has in (False, True))

    expected, found = (run(made.model, feed) for made in (in_int8, in_float))
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    graph = graph_from_bytes(in_float.model, "test")
    behind = {before_cast(graph, node.inputs[1]) for node in graph.nodes if node.op_type == "Conv"}
    for name in behind:
        quantize_node = graph.producer(graph.producer(name).inputs[0])
        assert quantize_node.op_type == "QuantizeLinear"  # TensorRT 8 takes no int8 weights
        assert graph.dtype(quantize_node.inputs[0]) == "float32"
    assert in_float.mac_share_int8 == in_int8.mac_share_int8


def test_factors_of_a_resize_stay_float32_and_the_neck_runs(tmp_path):
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    t = csp(path)

    half = quantized(path, feed, spec=spec_of(path), is_float16=True, keep_float=[t["cv2"], t["cv3"]])

    whole = quantized(path, feed, spec=spec_of(path), keep_float=[t["cv2"], t["cv3"]])
    values = [run(result.model, feed)["output0"] for result in (half, whole)]
    np.testing.assert_allclose(*values, atol=0.1)


def test_output_that_a_convolution_makes_is_float32(tmp_path):
    net = Net(32, batch=1)
    hidden = net.silu(net.conv(net.image, 3, 4))
    net.nodes.append(
        onnx.helper.make_node("Conv", [hidden, net.const(np.ones((2, 4, 1, 1)))], ["output0"], name="last")
    )
    path, feed = net.save(tmp_path / "bare.onnx", {"output0": (2, 32, 32)}), pictures(size=32)

    half = quantized(path, feed, spec=spec_of(path), is_float16=True)

    assert run(half.model, feed)["output0"].dtype == np.float32
    assert element_types(half.model)["output0/inner"] == TensorProto.FLOAT16


def test_values_beyond_float16_are_refused(tmp_path):
    net = Net(32, batch=1)
    large = net.op("Mul", net.conv(net.image, 3, 4), net.const(1e6))
    net.op("Relu", net.conv(net.op("Mul", large, net.const(1e-6)), 4, 2), name="output0")
    path = net.save(tmp_path / "large.onnx", {"output0": (2, 32, 32)})

    with pytest.raises(ModelError, match="reads 1e\\+06, which float16 cannot hold"):
        quantized(path, spec=spec_of(path), is_float16=True)


def test_range_beyond_float16_is_refused(tmp_path):
    path = tmp_path / "csp.onnx"
    csp(path)
    ranges = dict.fromkeys(quantizable_tensors(load_graph(path)), 1.0) | {"images": 1e5}

    with pytest.raises(ModelError, match='"images" reaches 100000, more than float16 can hold'):
        insert_qdq(path, spec_of(path), ranges=ranges, keep_float=(), is_float16=True)


@pytest.mark.parametrize("build", FAMILIES)
def test_uint8_activations_are_the_same_values(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()
    result = quantized(path, feed)

    moved = with_uint8_activations(graph_from_bytes(result.model, "Q/DQ"))

    for name, value in run(result.model, feed).items():
        np.testing.assert_array_equal(run(moved, feed)[name], value)
    stored = {tensor.name: tensor.data_type for tensor in onnx.load_model_from_string(moved).graph.initializer}
    points = {
        node.input[2] for node in onnx.load_model_from_string(moved).graph.node if node.op_type == "QuantizeLinear"
    }
    assert {stored[name] for name in points} == {TensorProto.UINT8}


@pytest.mark.parametrize("build", FAMILIES)
def test_float_arithmetic_makes_the_same_levels_without_a_pair(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()
    result = quantized(path, feed)

    emulated = with_float_arithmetic(graph_from_bytes(result.model, "Q/DQ"))

    assert not {"QuantizeLinear", "DequantizeLinear"}.intersection(kinds(emulated))
    for name, value in run(result.model, feed).items():
        np.testing.assert_array_equal(run(emulated, feed)[name], value)


@pytest.mark.parametrize("zero", [np.array(7, np.uint8), np.array(-5, np.int8), None], ids=["uint8", "int8", "none"])
def test_float_arithmetic_keeps_levels_of_any_zero_point(tmp_path, zero):
    net = Net(4, batch=1)
    operands = [net.image, net.const(0.004)]
    if zero is not None:
        operands.append(net.const(zero, zero.dtype))
    quantized = net.op("QuantizeLinear", *operands)
    net.op("DequantizeLinear", quantized, *operands[1:], name="output0")
    path = net.save(tmp_path / "pair.onnx", {"output0": (3, 4, 4)})
    feed = {"images": np.linspace(-1.5, 1.5, 48, dtype=np.float32).reshape(1, 3, 4, 4)}

    emulated = with_float_arithmetic(load_graph(path))

    assert kinds(emulated) == ["Div", "Round", "Clip", "Mul"]
    np.testing.assert_array_equal(run(emulated, feed)["output0"], run(path.read_bytes(), feed)["output0"])


def test_float_arithmetic_of_float16_divides_in_float32(tmp_path):
    """As ONNX Runtime's QuantizeLinear from 1.24 on: a quotient in float16 is another level for one value in sixty."""
    operands = [numpy_helper.from_array(np.array(0.0123, np.float16), "scale")]
    operands.append(numpy_helper.from_array(np.array(0, np.int8), "zero"))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["level"]),
        helper.make_node("DequantizeLinear", ["level", "scale", "zero"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [5000]) for name in "xy"]
    graph = helper.make_graph(nodes, "pair", ends[:1], ends[1:], operands)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    feed = {"x": np.random.default_rng(0).normal(0, 1, 5000).astype(np.float16)}

    emulated = with_float_arithmetic(graph_from_bytes(model, "pair"))

    assert not {"QuantizeLinear", "DequantizeLinear"}.intersection(kinds(emulated))
    scale = np.float16(0.0123)
    levels = np.rint(feed["x"].astype(np.float32) / np.float32(scale)).clip(-128, 127)
    np.testing.assert_array_equal(run(emulated, feed)["y"], levels.astype(np.float16) * scale)


def test_float_arithmetic_leaves_a_pair_alone_that_changes_the_scale(tmp_path):
    net = Net(4, batch=1)
    zero = net.const(0, np.int8)
    quantized = net.op("QuantizeLinear", net.image, net.const(0.01), zero)
    net.op("DequantizeLinear", quantized, net.const(0.02), zero, name="output0")
    path = net.save(tmp_path / "pair.onnx", {"output0": (3, 4, 4)})

    assert kinds(with_float_arithmetic(load_graph(path))) == kinds(path.read_bytes())


def compiled(model):
    core = openvino.Core()
    return core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def precisions(compiled_model):
    """Return the precision that each convolution runs in."""
    infos = [node.get_rt_info() for node in compiled_model.get_runtime_model().get_ops()]
    found = [{key: info[key].astype(str) for key in ("layerType", "runtimePrecision")} for info in infos]
    return [info["runtimePrecision"] for info in found if info["layerType"] == "Convolution"]


@needs_exact_int8
def test_openvino_computes_the_neck_in_int8_and_right(tmp_path):
    """Concat, MaxPool, Resize, Split and residual included: within what one step here and there makes."""
    path, feed = tmp_path / "csp.onnx", pictures(size=32)
    t = csp(path)
    result = quantized(path, feed, spec=spec_of(path), keep_float=[t["head"]])

    model = compiled(with_uint8_activations(graph_from_bytes(result.model, "Q/DQ")))

    assert sorted(precisions(model)) == ["f32", *["u8"] * 6]
    expected = run(result.model, feed)["output0"]
    difference = np.abs(model(feed["images"])[0] - expected)
    assert difference.max() < 0.05 * expected.max()
    assert difference.mean() < 0.002 * expected.max()


@needs_exact_int8
@pytest.mark.parametrize("build", FAMILIES)
def test_openvino_accepts_detectors(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()
    result = quantized(path, feed)

    model = compiled(with_uint8_activations(graph_from_bytes(result.model, "Q/DQ")))

    assert precisions(model).count("u8") >= 0.8 * len(result.quantized_nodes)
    if build is not yolov10:  # whose rows are sorted by score: one step may change places
        expected = next(iter(run(result.model, feed).values()))
        assert np.abs(model(feed["images"])[0] - expected).mean() < 0.01 * np.abs(expected).mean()


def as_others_write_it(model, form):
    """Zero points of one element, as torch exports them, or the type at the node alone, as opset 21 has it."""
    proto = onnx.load_model_from_string(model)
    graph, values = graph_from_bytes(model, "Q/DQ"), stored(proto)
    for node in (node for node in proto.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")):
        if not graph.is_varying(node.input[0]):
            continue
        if form == "shape 1":
            for name in (one for one in node.input[1:] if values[one].ndim == 0):
                store(proto, name, values[name].reshape(1))
        else:
            del node.input[2]
            if node.op_type == "QuantizeLinear":
                node.attribute.append(helper.make_attribute("output_dtype", TensorProto.INT8))
    proto.opset_import[0].version = 21
    return proto.SerializeToString()


@pytest.mark.parametrize("form", ["shape 1", "output_dtype"])
def test_pairs_as_others_write_them_become_the_same_uint8_and_float_arithmetic(tmp_path, form):
    path, feed = yolov8(tmp_path / "float.onnx", batch=1), pictures()
    written = as_others_write_it(quantized(path, feed).model, form)
    expected = run(written, feed)["output0"]

    moved = with_uint8_activations(graph_from_bytes(written, "Q/DQ"))
    plain = with_float_arithmetic(graph_from_bytes(written, "Q/DQ"))

    made = onnx.load_model_from_string(moved)
    points = {str(stored(made)[n.input[2]].dtype) for n in made.graph.node if n.op_type == "QuantizeLinear"}
    assert points == {"uint8"}
    assert "QuantizeLinear" not in kinds(plain)
    for one in (moved, plain):
        np.testing.assert_allclose(run(one, feed)["output0"], expected, rtol=1e-3, atol=1e-3)
