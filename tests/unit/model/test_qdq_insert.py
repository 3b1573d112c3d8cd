"""Pairs stand where the rules of TensorRT want them, and compute what fake quantization in numpy computes.

The share of INT8 is counted in the Q/DQ model itself, as the placement that made it counts.
"""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.errors import ModelError
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.inspect import inspect_model
from edge.model.opset import with_opset
from edge.model.qdq import insert_qdq, int8_mac_share, quantizable_tensors
from tests.support import models
from tests.support.models import Net, yolov5, yolov8, yolov10, yolox
from tests.support.tables import (
    csp,
    fake_quantize,
    fake_quantize_channels,
    minmax,
    one_operator,
    pairs,
    pictures,
    quantized,
    run,
    run_node,
    spec_of,
)

FAMILIES = [yolov5, yolov8, yolox, yolov10]


def quantize(path, **more):
    return quantized(path, **{"spec": spec_of(path), **more})


def assert_computes_fake_quantization(path, result, feed, *, axes, skips=()):
    """Compare node by node, each fed with what the Q/DQ model itself has in front of it.

    axes: output channel axis of the weight of each operator; skips: outputs of Adds whose first input is quantized.
    """
    proto = onnx.load(path)
    values = run(result.model, feed, [name for node in proto.graph.node for name in node.output]) | feed
    values |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    checked = 0
    for node in proto.graph.node:
        inputs = dict(values)
        if node.name in result.quantized_nodes or node.output[0] in skips:
            left, right = node.input[:2]
            inputs[left] = fake_quantize(values[left], result.ranges[left])
            if node.output[0] not in skips:
                stored = right in {tensor.name for tensor in proto.graph.initializer}
                inputs[right] = (
                    fake_quantize_channels(values[right], axes[node.op_type]) if stored
                    else fake_quantize(values[right], result.ranges[right])
                )  # fmt: skip
            checked += 1
        elif node.op_type not in ("Sigmoid", "Mul", "Add", "Relu", *axes):
            continue
        for name, value in zip(node.output, run_node(node, inputs, proto.opset_import[0].version), strict=True):
            np.testing.assert_allclose(values[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
    assert checked == len(result.quantized_nodes) + len(skips)


def assert_rounds_like_numpy(result, feed):
    """What is dequantized is at most one step from numpy's, and the same nearly everywhere."""
    tensors = dict(pairs(result.model).values())
    values = run(result.model, feed, [*(t for t in tensors if t not in feed), *(f"{t}/dequantized" for t in tensors)])
    for tensor, scale in tensors.items():
        difference = np.abs(values[f"{tensor}/dequantized"] - fake_quantize({**values, **feed}[tensor], scale * 127))
        assert difference.max() <= scale * 1.001, tensor
        assert (difference > scale / 2).mean() < 1e-3, tensor


@pytest.mark.parametrize("build", FAMILIES)
def test_detector_computes_fake_quantization(tmp_path, build):
    path, feed = build(tmp_path / "tiny.onnx", batch=1), pictures()

    result = quantize(path, feed=feed, spec=inspect_model(path))

    adds = [node.output[0] for node in onnx.load(path).graph.node if node.op_type == "Add"]
    skips = [name for name in adds if (name, 0) in pairs(result.model)]
    assert len(skips) == 3  # one for each level of the backbone
    assert not result.float_nodes
    assert_rounds_like_numpy(result, feed)
    assert_computes_fake_quantization(path, result, feed, axes={"Conv": 0}, skips=skips)


@pytest.mark.parametrize("build", FAMILIES)
def test_detector_is_inspected_as_before(tmp_path, build):
    path = build(tmp_path / "tiny.onnx")
    before = inspect_model(path)
    path.write_bytes(quantize(path, feed=pictures(), spec=before).model)

    after = inspect_model(path)

    assert after.is_quantized
    assert (after.family, after.strides, after.labels, after.batch) == (
        before.family, before.strides, before.labels, before.batch,
    )  # fmt: skip


def test_neck_computes_fake_quantization(tmp_path):
    path = tmp_path / "csp.onnx"
    tensors = csp(path)
    feed = pictures(size=32)

    result = quantize(path, feed=feed)

    assert_rounds_like_numpy(result, feed)
    assert_computes_fake_quantization(path, result, feed, axes={"Conv": 0}, skips=[tensors["add"]])


def test_pairs_stand_in_front_of_weights_residual_and_resize_only(tmp_path):
    t = csp(tmp_path / "csp.onnx")

    result = quantize(tmp_path / "csp.onnx")

    read = {(reader, tensor) for (reader, _), (tensor, _) in pairs(result.model).items()}
    convolutions = {
        node.name: node.inputs[0] for node in load_graph(tmp_path / "csp.onnx").nodes if node.op_type == "Conv"
    }
    assert read == {*convolutions.items(), (t["add"], t["b"]), (t["up"], t["cv4"])}
    assert set(convolutions.values()) == {
        "images", t["b"], t["cv1"], t["joined"], t["sppf"], t["stem"], t["neck"]
    }  # fmt: skip


def test_one_scale_is_shared_around_what_moves_values(tmp_path):
    """The stem is not in it: beside Split, a convolution reads it."""
    t = csp(tmp_path / "csp.onnx")
    feed = pictures(size=32)
    seen = minmax(tmp_path / "csp.onnx", feed)

    result = quantize(tmp_path / "csp.onnx", feed=feed)

    groups = [("a", "b", "add", "joined"), ("cv3", "pool1", "pool2", "sppf"), ("cv4", "up", "lateral", "neck")]
    for group in groups:
        largest = max(seen[t[name]] for name in group)
        assert {result.ranges[t[name]] for name in group} == {largest}
    scales = dict(pairs(result.model).values())
    assert scales[t["b"]] == scales[t["joined"]] == np.float32(max(seen[t[n]] for n in groups[0]) / 127)
    assert scales[t["stem"]] == np.float32(seen[t["stem"]] / 127)


def test_ranges_are_needed_where_values_are_made(tmp_path):
    t = csp(tmp_path / "csp.onnx")

    needed = quantizable_tensors(load_graph(tmp_path / "csp.onnx"))

    made = {"images", *(t[name] for name in ("stem", "a", "b", "cv1", "add", "cv3", "cv4", "lateral"))}
    assert set(needed) == made
    assert len(needed) == len(made)


def test_split_that_alone_reads_a_tensor_shares_its_scale(tmp_path):
    """As in C2f: only the range of what is split is needed. As in attention, parts with scales of their own: not."""
    for is_joined in (True, False):
        net = Net(32, batch=1)
        stem = net.silu(net.conv(net.image, 3, 8, kernel=3))
        left, right = net.ops("Split", stem, net.ints(4, 4), count=2, axis=1)
        if is_joined:
            net.conv(net.op("Concat", right, left, axis=1), 8, 4)
        else:
            net.op("Add", net.conv(left, 4, 4), net.conv(right, 4, 4))
        net.op("Relu", net.nodes[-1].output[0], name="output0")
        path = net.save(tmp_path / "split.onnx", {"output0": (4, 32, 32)})

        needed = quantizable_tensors(load_graph(path))

        assert set(needed) == ({"images", stem} if is_joined else {"images", left, right})


def test_of_two_branches_the_later_is_fused_and_the_other_quantized(tmp_path):
    net = Net(32, batch=1)
    first, second = net.conv(net.image, 3, 4), net.silu(net.conv(net.image, 3, 4))
    net.op("Relu", net.conv(net.op("Add", second, first, name="sum"), 4, 2), name="output0")
    path = net.save(tmp_path / "two.onnx", {"output0": (2, 32, 32)})

    found = pairs(quantize(path).model)

    assert found["sum", 1][0] == first
    assert ("sum", 0) not in found


@pytest.mark.parametrize(
    "reason",
    [
        "the convolution is read elsewhere",
        "no convolution",
        "pooled",
        "the sum is read in float",
        "the sum is an output",
    ],
)
def test_sum_that_fuses_with_no_convolution_stays_in_float(tmp_path, reason):
    net = Net(32, batch=1)
    skip = net.op("MaxPool", net.image, kernel_shape=[1, 1])
    branch = net.op("Mul", skip, skip) if reason == "no convolution" else net.silu(net.conv(skip, 3, 3))
    if reason == "pooled":
        branch = net.op("AveragePool", branch, kernel_shape=[1, 1])
    total = net.op("Add", skip, branch, name="sum")
    last = net.conv(total, 3, 3)
    if reason == "the convolution is read elsewhere":
        last = net.op("Sub", last, branch)
    if reason == "the sum is read in float":
        last = net.op("Sub", last, total)
    net.op("Relu", last, name="output0")
    outputs = {"output0": (3, 32, 32)} | ({"sum": (3, 32, 32)} if reason == "the sum is an output" else {})
    path = net.save(tmp_path / "sum.onnx", outputs)

    found = pairs(quantize(path).model)

    assert not {place for place in found if place[0] == "sum"}


OPERATORS = {
    "Conv": ("Conv", (5, 4, 3, 3), {"kernel_shape": [3, 3]}, 0),
    "depthwise Conv": ("Conv", (4, 1, 3, 3), {"kernel_shape": [3, 3], "group": 4}, 0),
    "ConvTranspose": ("ConvTranspose", (4, 3, 2, 2), {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    "ConvTranspose in groups": ("ConvTranspose", (4, 3, 2, 2), {"kernel_shape": [2, 2], "group": 2}, 1),
    "MatMul": ("MatMul", (6, 5), {}, 1),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_weights_are_quantized_along_their_output_channels(tmp_path, case):
    kind, shape, attributes, axis = OPERATORS[case]
    random = np.random.default_rng(1)
    weight = random.normal(0, 1, shape) * random.uniform(0.01, 10, [n if i == axis else 1 for i, n in enumerate(shape)])
    path = one_operator(tmp_path / "one.onnx", kind, weight=weight, **attributes)
    feed = {"images": random.normal(0, 1, (1, 4, 6, 6)).astype(np.float32)}

    result = quantize(path, feed=feed)

    assert result.quantized_nodes == ("product",)
    assert_computes_fake_quantization(path, result, feed, axes={kind: axis})
    stored = [onnx.numpy_helper.to_array(x) for x in onnx.load_model_from_string(result.model).graph.initializer]
    (integers,) = (value for value in stored if value.dtype == np.int8 and value.ndim > 1)
    others = tuple(i for i in range(len(shape)) if i != axis)
    assert (np.abs(integers.astype(int)).max(axis=others) == 127).all()
    assert all((value == 0).all() for value in stored if value.dtype == np.int8 and value.ndim < 2)


@pytest.mark.parametrize("is_transposed", [0, 1])
def test_gemm_is_quantized_along_its_output_channels(tmp_path, is_transposed):
    weight = np.random.default_rng(1).normal(0, 1, (5, 6) if is_transposed else (6, 5)) * 3
    path = one_operator(tmp_path / "one.onnx", "Gemm", weight=weight, shape=(4, 6), transB=is_transposed)
    feed = {"images": np.random.default_rng(2).normal(0, 1, (4, 6)).astype(np.float32)}

    result = insert_qdq(load_graph(path), spec_of(path, size=6), ranges={"images": 3.0}, keep_float=())

    assert_computes_fake_quantization(path, result, feed, axes={"Gemm": 1 - is_transposed})


def test_product_of_two_activations_is_quantized_on_both_sides(tmp_path):
    path = one_operator(tmp_path / "one.onnx", "MatMul")
    feed = {"images": np.random.default_rng(2).normal(0, 1, (1, 4, 6, 6)).astype(np.float32)}

    result = quantize(path, feed=feed)

    assert set(pairs(result.model)) == {("product", 0), ("product", 1)}
    assert_computes_fake_quantization(path, result, feed, axes={"MatMul": 1})


def test_dead_channels_and_dead_tensors_stay_zero(tmp_path):
    weight = np.random.default_rng(1).normal(0, 1, (3, 4, 1, 1))
    weight[1] = 0
    path = one_operator(tmp_path / "one.onnx", "Conv", weight=weight, kernel_shape=[1, 1])
    feed = {"images": np.zeros((1, 4, 6, 6), np.float32)}

    result = quantize(path, feed=feed)

    scales = {
        x.name: onnx.numpy_helper.to_array(x) for x in onnx.load_model_from_string(result.model).graph.initializer
    }
    assert scales["const_0/scale"][1] == scales["images/scale"] == 1.0
    assert (run(result.model, feed)["output0"] == 0.5).all()


def test_node_kept_in_float_reads_and_computes_float(tmp_path):
    """The Concat in front of it is read by a second convolution, in INT8: that one gets a pair of its own."""
    net = Net(32, batch=1)
    joined = net.op("Concat", net.silu(net.conv(net.image, 3, 4)), net.silu(net.conv(net.image, 3, 4)), axis=1)
    kept, other = net.conv(joined, 8, 4), net.conv(joined, 8, 4)
    net.op("Add", kept, other, name="output0")
    path = net.save(tmp_path / "two.onnx", {"output0": (4, 32, 32)})
    feed = pictures(size=32)

    result = quantize(path, keep_float=[kept], feed=feed)

    assert result.float_nodes == (kept,)
    found = pairs(result.model)
    assert {reader for reader, _ in found} == set(result.quantized_nodes)
    assert found[other, 0][0] == joined
    assert_computes_fake_quantization(path, result, feed, axes={"Conv": 0})


def test_share_of_multiply_accumulates_is_counted(tmp_path):
    """Both are 1x1 on 32x32: 3 x 8 and 8 x 2 products for each pixel."""
    net = Net(32, batch=1)
    last = net.conv(net.silu(net.conv(net.image, 3, 8)), 8, 2)
    net.op("Relu", last, name="output0")
    path = net.save(tmp_path / "two.onnx", {"output0": (2, 32, 32)})

    assert quantize(path).mac_share_int8 == 1.0
    assert quantize(path, keep_float=[last]).mac_share_int8 == 24 / (24 + 16)


def test_same_input_gives_same_bytes(tmp_path):
    csp(tmp_path / "csp.onnx")

    assert quantize(tmp_path / "csp.onnx").model == quantize(tmp_path / "csp.onnx").model


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ranges_suffice_whatever_is_kept(tmp_path, data):
    t = csp(tmp_path / "csp.onnx")
    graph = load_graph(tmp_path / "csp.onnx")
    keep = data.draw(st.sets(st.sampled_from([node.name for node in graph.nodes] + ["images", t["b"]])))
    ranges = dict.fromkeys(quantizable_tensors(graph), 2.0)

    result = insert_qdq(graph, spec_of(tmp_path / "csp.onnx"), ranges=ranges, keep_float=keep)

    assert not keep.intersection(result.quantized_nodes)
    assert len(result.quantized_nodes) + len(result.float_nodes) == 7
    assert set(result.ranges.values()) <= {2.0}
    graph_from_bytes(result.model, "checked")


def test_missing_range_is_named_with_its_nearest(tmp_path):
    csp(tmp_path / "csp.onnx")
    graph = load_graph(tmp_path / "csp.onnx")
    ranges = dict.fromkeys(quantizable_tensors(graph), 1.0)
    ranges["image"] = ranges.pop("images")

    with pytest.raises(ModelError, match=r'no range is known of "images" \(nearest known: "image"\)'):
        insert_qdq(graph, spec_of(tmp_path / "csp.onnx"), ranges=ranges, keep_float=())


def test_range_of_what_is_joined_stands_for_its_parts(tmp_path):
    """As tables of other tools have it: the Concat is known, what goes in is not."""
    t = csp(tmp_path / "csp.onnx")
    graph = load_graph(tmp_path / "csp.onnx")
    ranges = dict.fromkeys(quantizable_tensors(graph), 1.0)
    del ranges[t["cv3"]]
    ranges[t["sppf"]] = 7.0

    result = insert_qdq(graph, spec_of(tmp_path / "csp.onnx"), ranges=ranges, keep_float=())

    assert result.ranges[t["cv3"]] == result.ranges[t["sppf"]] == 7.0


@pytest.mark.parametrize("amax", [float("nan"), float("inf"), -1.0])
def test_range_that_is_none_is_refused(tmp_path, amax):
    csp(tmp_path / "csp.onnx")
    graph = load_graph(tmp_path / "csp.onnx")
    ranges = dict.fromkeys(quantizable_tensors(graph), 1.0) | {"images": amax}

    with pytest.raises(ModelError, match='range of "images"'):
        insert_qdq(graph, spec_of(tmp_path / "csp.onnx"), ranges=ranges, keep_float=())


def test_unknown_name_to_keep_is_refused(tmp_path):
    t = csp(tmp_path / "csp.onnx")

    with pytest.raises(ModelError, match=f'"{t["head"]}x" \\(nearest: "{t["head"]}"\\)'):
        quantize(tmp_path / "csp.onnx", keep_float=[f"{t['head']}x"])


def test_quantized_model_is_refused(tmp_path):
    csp(tmp_path / "csp.onnx")
    path = tmp_path / "quantized.onnx"
    path.write_bytes(quantize(tmp_path / "csp.onnx").model)

    with pytest.raises(ModelError, match="quantized already"):
        insert_qdq(path, spec_of(path), ranges={}, keep_float=())


def test_half_precision_weights_are_refused(tmp_path):
    path = one_operator(tmp_path / "one.onnx", "MatMul", weight=np.eye(6), stored_type=np.float16)
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    path.write_bytes(proto.SerializeToString())

    with pytest.raises(ModelError, match="expected a float32 model, this one computes in float16"):
        insert_qdq(path, spec_of(path), ranges={"images": 1.0}, keep_float=())


def test_old_operator_set_is_raised_and_computes_the_same(tmp_path):
    weight = np.random.default_rng(1).normal(0, 1, (5, 4, 3, 3))
    path = one_operator(tmp_path / "old.onnx", "Conv", weight=weight, opset=11, kernel_shape=[3, 3])
    feed = {"images": np.random.default_rng(2).normal(0, 1, (1, 4, 6, 6)).astype(np.float32)}

    result = quantize(path, feed=feed)

    assert graph_from_bytes(result.model, "raised").opset == 13
    assert_computes_fake_quantization(path, result, feed, axes={"Conv": 0})


def test_operator_set_that_is_new_enough_is_kept(tmp_path):
    csp(tmp_path / "csp.onnx")

    assert graph_from_bytes(quantize(tmp_path / "csp.onnx").model, "kept").opset == 17


def test_operator_set_that_cannot_be_raised_is_refused(tmp_path):
    csp(tmp_path / "csp.onnx")

    with pytest.raises(ModelError, match="csp: opset 17 cannot be converted to 999"):
        with_opset(load_graph(tmp_path / "csp.onnx"), 999, "csp")


def test_weights_among_the_inputs_are_taken_off_the_list(tmp_path):
    csp(tmp_path / "csp.onnx")
    proto = onnx.load(tmp_path / "csp.onnx")
    for tensor in proto.graph.initializer:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    (tmp_path / "csp.onnx").write_bytes(proto.SerializeToString())

    result = quantize(tmp_path / "csp.onnx")

    assert [value.name for value in onnx.load_model_from_string(result.model).graph.input] == ["images"]


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
