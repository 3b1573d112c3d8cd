"""What a padded convolution reads is quantized around a centre, too: its padding is minus the centre, exactly."""

import numpy as np
import pytest

from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import with_float_arithmetic
from tests.support import models
from tests.support.models import Net
from tests.support.tables import all_tensors, pictures, quantized, run, spec_of

SIDE = 9
PIXELS = np.random.default_rng(7).integers(0, 255, (1, 3, SIDE, SIDE)).astype(np.float32)
PIXELS[..., 0, 0] = 254  # 254 steps of 1 from 0 on: every pixel is a level
FEED = {"images": PIXELS}
FORMS = {"int8": {}, "uint8": {"has_zero_points": True}, "float weights": {"has_float_weights": True}}
CONVOLUTIONS = {
    "padded all around": {"pads": [1, 1, 1, 1]},
    "padded on two sides, in strides": {"pads": [0, 2, 1, 0], "strides": [2, 2]},
    "each channel by itself": {"pads": [1, 1, 1, 1], "group": 3},
    "dilated": {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
    "not padded": {},
    "padded where the exporter says that it is not": {"pads": [0, 0, 0, 0], "auto_pad": "NOTSET"},
}


def net_of(build, path, shape):
    """images -> Relu -> what `build` makes of it -> output0."""
    net = Net(SIDE, batch=1, seed=5)
    net.op("Identity", build(net, net.op("Relu", net.image)), name="output0")
    net.save(path, {"output0": shape})
    return path


def whole_weight(random, out, into):
    """A weight of whole numbers of which each channel reaches 127: INT8 holds it exactly."""
    weight = random.integers(-127, 128, (out, into, 3, 3)).astype(np.float32)
    weight[:, 0, 1, 1] = 127
    return weight


def convolution(net, x, **attributes):
    weight = net.const(whole_weight(net.random, 3, 3 // attributes.get("group", 1)))
    return net.op("Conv", x, weight, net.const(np.array([3, -5, 8])), kernel_shape=[3, 3], **attributes)


def quantize(path, feed=FEED, *, size=SIDE, is_padded=True, **more):
    return quantized(path, feed, spec=spec_of(path, size=size), is_centred=True, is_padded=is_padded, **more)


def output_of(path, attributes):
    net_of(lambda net, x: convolution(net, x, **attributes), path, (3, None, None))
    return run(path.read_bytes(), FEED)["output0"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("situation", CONVOLUTIONS)
def test_where_every_value_is_a_level_int8_equals_float_to_the_bit(tmp_path, situation, form):
    path = tmp_path / "m.onnx"
    exact = output_of(path, CONVOLUTIONS[situation])

    result = quantize(path, **FORMS[form])

    assert len(result.centres) == 1
    np.testing.assert_array_equal(run(result.model, FEED)["output0"], exact)


@pytest.mark.parametrize("form", FORMS)
def test_so_it_does_where_int8_is_computed_in_float(tmp_path, form):
    """For a CPU without VNNI: levels by Div, Round and Clip, around zero points or not."""
    path = tmp_path / "m.onnx"
    exact = output_of(path, {"pads": [1, 1, 1, 1]})

    model = with_float_arithmetic(graph_from_bytes(quantize(path, **FORMS[form]).model, "int8"))

    np.testing.assert_array_equal(run(model, FEED)["output0"], exact)


@pytest.mark.parametrize("form", FORMS)
def test_so_are_the_bounds_of_levels_where_int8_is_computed_in_float(tmp_path, form):
    """254 is the highest level around the centre; what the table has not seen is cut off there, and no lower."""
    path = tmp_path / "m.onnx"
    output_of(path, {"pads": [1, 1, 1, 1]})
    beyond, cut = ({"images": np.minimum(3 * PIXELS, most)} for most in (np.float32(762), np.float32(254)))

    model = with_float_arithmetic(graph_from_bytes(quantize(path, **FORMS[form]).model, "int8"))

    assert (beyond["images"] > 255).any()
    np.testing.assert_array_equal(run(model, beyond)["output0"], run(path.read_bytes(), cut)["output0"])


@pytest.mark.parametrize("form", FORMS)
def test_without_a_centre_the_levels_end_at_minus_128_and_127_in_float_as_well(tmp_path, form):
    path = tmp_path / "m.onnx"
    net = Net(SIDE, batch=1, seed=5)
    net.op("Identity", convolution(net, net.image, pads=[1, 1, 1, 1]), name="output0")
    net.save(path, {"output0": (3, SIDE, SIDE)})
    seen = {"images": np.clip(PIXELS - 127, -127, 127)}
    seen["images"][..., 0, 0] = 127  # 127 steps of 1
    beyond, cut = ({"images": np.clip(3 * seen["images"], -most - 1, most)} for most in (400, 127))

    result = quantize(path, seen, **FORMS[form])
    model = with_float_arithmetic(graph_from_bytes(result.model, "int8"))

    assert not result.centres
    assert (beyond["images"].min(), beyond["images"].max()) == (-381, 381)
    np.testing.assert_array_equal(run(model, beyond)["output0"], run(path.read_bytes(), cut)["output0"])


def test_without_the_word_a_padded_convolution_reads_what_it_read_before(tmp_path):
    path = tmp_path / "m.onnx"
    output_of(path, {"pads": [1, 1, 1, 1]})

    assert not quantize(path, is_padded=False).centres


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_is_left_to_the_runtime_has_no_centre(tmp_path, auto_pad):
    path = tmp_path / "m.onnx"
    output_of(path, {"auto_pad": auto_pad})

    assert not quantize(path).centres


def test_one_tensor_that_is_read_with_and_without_padding_is_padded_for_the_former_only(tmp_path):
    path = tmp_path / "m.onnx"

    def build(net, x):
        wide, narrow = convolution(net, x, pads=[1, 1, 1, 1]), net.const(np.full((3, 3, 1, 1), 127.0))
        again = convolution(net, x, pads=[1, 1, 1, 1])
        return net.op("Add", net.op("Add", wide, again), net.op("Conv", x, narrow, kernel_shape=[1, 1]))

    net_of(build, path, (3, SIDE, SIDE))
    exact, result = run(path.read_bytes(), FEED)["output0"], quantize(path)
    kinds = [node.op_type for node in graph_from_bytes(result.model, "test").nodes]

    assert (kinds.count("Sub"), kinds.count("Pad")) == (1, 1)
    np.testing.assert_array_equal(run(result.model, FEED)["output0"], exact)


def test_a_layer_in_float_pads_by_zero_beside_one_in_int8(tmp_path):
    path = tmp_path / "m.onnx"

    def build(net, x):
        return net.op("Add", convolution(net, x, pads=[1] * 4), convolution(net, x, pads=[1] * 4))

    net_of(build, path, (3, SIDE, SIDE))
    kept = next(node.name for node in load_graph(path).nodes if node.op_type == "Conv")

    result = quantize(path, keep_float=[kept])

    assert kept in result.float_nodes
    np.testing.assert_array_equal(run(result.model, FEED)["output0"], run(path.read_bytes(), FEED)["output0"])


def test_beside_float16_padding_is_done_in_float32(tmp_path):
    """In float16 minus the centre would no longer be a whole number of steps."""
    path = tmp_path / "m.onnx"
    output_of(path, {"pads": [1, 1, 1, 1]})

    graph = graph_from_bytes(quantize(path, is_float16=True).model, "half")

    (pad,) = (node for node in graph.nodes if node.op_type == "Pad")
    assert graph.dtype(pad.inputs[2]) == "float32"
    assert [reader.op_type for reader in graph.consumers(pad.outputs[0])] == ["QuantizeLinear"]
    assert graph.producer(pad.inputs[0]).op_type == "Sub"


@pytest.mark.parametrize("family", ["yolov5", "yolov8", "yolov10", "yolox"])
def test_zero_points_compute_what_subtracted_centres_do(tmp_path, family):
    path = getattr(models, family)(tmp_path / "m.onnx", batch=1)
    feed = pictures()
    subtracted, zero_points = (quantize(path, feed, size=96, **FORMS[form]) for form in ("int8", "uint8"))
    exact, one, other = (run(m, feed) for m in (path.read_bytes(), subtracted.model, zero_points.model))

    assert len(subtracted.centres) >= 8
    assert not zero_points.lowered
    for name in exact:
        scale = np.abs(exact[name]).max()
        # A sum that lies on the border of two levels may fall to either side.
        np.testing.assert_allclose(one[name] / scale, other[name] / scale, atol=0.02)
        assert np.abs(one[name] - other[name]).mean() < 0.1 * np.abs(one[name] - exact[name]).mean()


def test_what_is_read_behind_padding_is_nearer_to_float(tmp_path):
    path = tmp_path / "m.onnx"
    feed = {"images": np.random.default_rng(3).normal(0, 3, (1, 3, 8, 8)).astype(np.float32)}
    net = Net(8, batch=1, seed=5)
    stem = net.silu(net.conv(net.image, 3, 8))
    net.op("Identity", net.conv(stem, 8, 4, kernel=3), name="output0")
    net.save(path, {"output0": (4, 8, 8)})
    first = next(node.name for node in load_graph(path).nodes if node.op_type == "Conv")
    exact = all_tensors(path, feed)["output0"]

    error, before = (
        np.abs(
            run(quantize(path, feed, size=8, is_padded=on, keep_float=[first]).model, feed)["output0"] - exact
        ).mean()
        for on in (True, False)
    )

    assert error < 0.75 * before
