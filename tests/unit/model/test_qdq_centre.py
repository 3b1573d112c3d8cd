"""Around a centre int8 computes what an asymmetric uint8 would, and only where nothing else becomes wrong by it."""

import numpy as np
import onnx
import pytest
from onnx import helper

from edge.model.editor import resolve
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import insert_qdq
from edge.model.qdq.emulated import with_float_copies
from edge.model.qdq.placement import called
from edge.model.qdq.scales import lowest_values
from tests.support.models import Net
from tests.support.tables import all_tensors, fake_quantize_channels, quantized, run, spec_of

LOWEST_SILU = -0.27846455
SIDE = 8
FEED = {"images": np.random.default_rng(3).normal(0, 3, (1, 3, SIDE, SIDE)).astype(np.float32)}


def quantize(path, feed=FEED, *, size=SIDE, **more):
    return quantized(path, feed, spec=spec_of(path, size=size), is_centred=True, **more)


def asymmetric(x, amax):
    """Round to 255 steps of which a whole number lies below zero."""
    step = np.float32((amax - LOWEST_SILU) / 2 / 127)
    centre = round((amax + LOWEST_SILU) / 2 / float(step))
    return np.clip(np.rint(x / step), centre - 128, centre + 127).astype(np.float32) * step


def net_with(build, path):
    """images -> stem, a convolution and SiLU of 8 channels -> what `build` makes of it -> output0."""
    net = Net(SIDE, batch=1, seed=5)
    stem = net.silu(net.conv(net.image, 3, 8))
    net.op("Identity", build(net, stem), name="output0")
    net.save(path, {"output0": (4, SIDE, SIDE)})
    return stem


def stem_reader(graph):
    """Return what the last convolution makes."""
    return [node for node in graph.nodes if node.op_type == "Conv"][-1].outputs[0]


def centred(model):
    return {node.inputs[0] for node in graph_from_bytes(model, "test").nodes if node.op_type == "Sub"}


def test_a_convolution_reads_an_asymmetric_uint8(tmp_path):
    path = tmp_path / "m.onnx"
    stem = net_with(lambda net, stem: net.conv(stem, 8, 4), path)
    result = quantize(path)

    exact = all_tensors(path, FEED)
    graph = load_graph(path)
    weight, bias = (graph.constant(name) for name in graph.producer(stem_reader(graph)).inputs[1:])
    read = run(result.model, FEED, [stem])[stem]
    levels = asymmetric(read, np.abs(exact[stem]).max())
    expected = np.einsum("oi,bihw->bohw", fake_quantize_channels(weight, 0)[:, :, 0, 0], levels) + bias[:, None, None]

    assert centred(result.model) == {stem}
    np.testing.assert_allclose(run(result.model, FEED)["output0"], expected, rtol=1e-4, atol=1e-4)


def test_steps_are_nearly_half_as_large(tmp_path):
    path = tmp_path / "m.onnx"
    stem = net_with(lambda net, stem: net.conv(stem, 8, 4), path)

    result = quantize(path)

    assert result.centres[stem].range_ == pytest.approx((result.ranges[stem] - LOWEST_SILU) / 2)
    assert result.centres[stem].value / (result.centres[stem].range_ / 127) == pytest.approx(
        round(result.centres[stem].value / (result.centres[stem].range_ / 127)), abs=1e-3
    )


@pytest.mark.parametrize(
    ("situation", "build"),
    [
        ("padding would have to be minus the centre", lambda net, stem: net.conv(stem, 8, 4, kernel=3)),
        (
            "the exporter left padding to the runtime",
            lambda net, stem: net.op(
                "Conv",
                stem,
                net.const(np.ones((4, 8, 3, 3))),
                kernel_shape=[3, 3],
                auto_pad="SAME_UPPER",
            ),
        ),
        (
            "one of the readers pads",
            lambda net, stem: net.op("Add", net.conv(stem, 8, 4), net.conv(stem, 8, 4, kernel=3)),
        ),
        (
            "what is joined with it can be of any size",
            lambda net, stem: net.conv(net.op("Concat", stem, net.conv(stem, 8, 8), axis=1), 16, 4),
        ),
    ],
)
def test_nothing_has_a_centre_where(tmp_path, situation, build):
    path = tmp_path / "m.onnx"
    net_with(build, path)

    assert not centred(quantize(path).model), situation


def test_a_layer_in_float_reads_what_it_read_before(tmp_path):
    path = tmp_path / "m.onnx"
    stem = net_with(lambda net, stem: net.op("Add", net.conv(stem, 8, 4), net.conv(stem, 8, 4)), path)
    kept = stem_reader(load_graph(path))

    result = quantize(path, keep_float=[called(load_graph(path).producer(kept))])

    assert graph_from_bytes(result.model, "test").producer(kept).inputs[0] == stem
    assert centred(result.model) == {stem}


def test_what_is_joined_and_added_has_one_centre_and_gets_it_back(tmp_path):
    path = tmp_path / "m.onnx"

    def build(net, stem):
        inner = net.op("Add", stem, net.silu(net.conv(stem, 8, 8)))
        pooled = net.op("MaxPool", inner, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
        return net.conv(net.op("Concat", inner, pooled, stem, axis=1), 24, 4)

    net_with(build, path)
    exact, result = run(path.read_bytes(), FEED)["output0"], quantize(path)
    without = insert_qdq(path, spec_of(path, size=SIDE), ranges=result.ranges, keep_float=())

    error, before = (np.abs(run(m, FEED)["output0"] - exact).mean() for m in (result.model, without.model))

    assert len(centred(result.model)) == 2  # the stem and the sum; Concat and MaxPool are centred by what they read
    assert result.lowered
    assert error < 0.75 * before


def test_float_copies_and_whoever_looks_inside_see_the_tensors_of_the_float_model(tmp_path):
    path = tmp_path / "m.onnx"
    net_with(lambda net, stem: net.conv(net.op("Concat", stem, stem, axis=1), 16, 4), path)
    result = quantize(path)
    exact = all_tensors(path, FEED)

    with_copies, copies = with_float_copies(result, resolve(load_graph(path), (1, 3, SIDE, SIDE)))

    (joined,) = result.lowered
    found = run(with_copies, FEED, [joined, *copies.values()])
    np.testing.assert_allclose(found[joined], exact[joined], atol=0.3)  # as far as the stem's INT8 allows
    last = load_graph(path).producer(stem_reader(load_graph(path)))
    np.testing.assert_allclose(found[copies[called(last)]], exact[last.outputs[0]], atol=0.5)


def test_float16_and_float_weights_have_centres_too(tmp_path):
    path = tmp_path / "m.onnx"
    stem = net_with(lambda net, stem: net.conv(stem, 8, 4), path)
    expected = run(quantize(path).model, FEED)["output0"]

    half, float_weights = quantize(path, is_float16=True), quantize(path, has_float_weights=True)

    assert centred(half.model) | centred(float_weights.model) >= {stem}
    np.testing.assert_allclose(run(half.model, FEED)["output0"], expected, atol=0.1)
    np.testing.assert_allclose(run(float_weights.model, FEED)["output0"], expected, atol=1e-3)


def test_beside_float16_a_centre_is_taken_off_in_float32(tmp_path):
    """In float16 it would no longer be a whole number of steps."""
    path = tmp_path / "m.onnx"
    net_with(lambda net, stem: net.conv(stem, 8, 4), path)

    half = quantize(path, is_float16=True)

    graph = graph_from_bytes(half.model, "half")
    off = [node for node in graph.nodes if node.op_type == "Sub" and node.outputs[0].endswith("/centred")]
    assert off
    for node in off:
        assert graph.dtype(node.inputs[1]) == "float32"
        assert [reader.op_type for reader in graph.consumers(node.outputs[0])] == ["QuantizeLinear"]


X = np.linspace(-12, 12, 200_001)
SIGMOID = 1 / (1 + np.exp(-X))
FUNCTIONS = {
    "Sigmoid": SIGMOID,
    "Relu": np.maximum(X, 0),
    "HardSwish": X * np.clip(X / 6 + 0.5, 0, 1),
    "Mish": X * np.tanh(np.log1p(np.exp(X))),
    "HardSigmoid": np.clip(0.2 * X + 0.5, 0, 1),
}


def bounds(tmp_path, *nodes):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(list(nodes), "g", [value("x", 1, [9])], [value(nodes[-1].output[0], 1, ["n"])])
    path = tmp_path / "b.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return lowest_values(load_graph(path))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_lowest_value_is_the_functions_minimum(tmp_path, kind):
    found = bounds(tmp_path, helper.make_node(kind, ["x"], ["y"]))["y"]

    assert found <= FUNCTIONS[kind].min() + 1e-9
    assert found == pytest.approx(FUNCTIONS[kind].min(), abs=1e-4)


@pytest.mark.parametrize(("gate", "values"), [("Sigmoid", SIGMOID), ("HardSigmoid", FUNCTIONS["HardSigmoid"])])
def test_a_value_times_its_gate(tmp_path, gate, values):
    nodes = helper.make_node(gate, ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])

    found = bounds(tmp_path, *nodes)["y"]

    assert found <= (X * values).min() + 1e-9
    assert found == pytest.approx((X * values).min(), abs=1e-6)


def test_sums_and_joins(tmp_path):
    found = bounds(
        tmp_path,
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("HardSwish", ["x"], ["h"]),
        helper.make_node("Add", ["h", "h"], ["sum"]),
        helper.make_node("Concat", ["r", "sum"], ["joined"], axis=0),
        helper.make_node("Add", ["joined", "x"], ["any"]),
    )

    assert (found["sum"], found["joined"]) == (-0.75, -0.75)
    assert "x" not in found
    assert "any" not in found
