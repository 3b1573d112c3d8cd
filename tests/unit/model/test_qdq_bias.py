"""Where the means of what a convolution reads are known, INT8 has the mean of float behind it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge.errors import ModelError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import corrected_tensors, insert_qdq, quantizable_tensors, read_qdq
from tests.support.models import yolox
from tests.support.tables import csp, minmax, pictures, run, spec_of

RANGE = 127.0  # so that whole numbers are read exactly, and only the weights are rounded
MEANS = (3.0, -7.0, 11.0, 2.0)


def convolution(path, *, group=1, kernel=1, bias=True, kind="Conv", seed=0):
    """images (1, 4, 6, 6) -> a convolution without padding, 8 channels -> output0."""
    random = np.random.default_rng(seed)
    shape = (8, 4 // group, kernel, kernel) if kind == "Conv" else (4, 8, kernel, kernel)
    values = {"w": random.normal(0, 1, shape), "b": random.normal(0, 1, 8)}
    names = ["w", "b"] if bias else ["w"]
    side = 7 - kernel if kind == "Conv" else 5 + kernel
    graph = helper.make_graph(
        [helper.make_node(kind, ["images", *names], ["output0"], name="conv", group=group)],
        "one",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 8, side, side])],
        [numpy_helper.from_array(values[name].astype(np.float32), name) for name in names],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def flat(means=MEANS):
    """An input that is its mean everywhere."""
    return {"images": np.broadcast_to(np.float32(means)[:, None, None], (1, 4, 6, 6)).copy()}


def int8(path, *, means=None, keep_float=(), **more):
    spec = spec_of(path, size=6)
    return insert_qdq(path, spec, ranges={"images": RANGE}, means=means, keep_float=keep_float, **more).model


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_on_an_input_that_is_its_mean_everywhere_int8_is_float(tmp_path, group, kernel, bias):
    path = convolution(tmp_path / "m.onnx", group=group, kernel=kernel, bias=bias)
    exact = run(path.read_bytes(), flat())["output0"]

    found = run(int8(path, means={"images": MEANS}), flat())["output0"]
    without = run(int8(path), flat())["output0"]

    np.testing.assert_allclose(found, exact, atol=1e-5)
    is_exact = group == 4 and kernel == 1  # one weight for each channel is its own scale
    assert (np.abs(without - exact).max() < 1e-5) == is_exact


def test_float16_scales_round_weights_otherwise_and_are_corrected_for_that(tmp_path):
    path = convolution(tmp_path / "m.onnx", kernel=3)
    exact = run(path.read_bytes(), flat())["output0"]

    found, without = (
        np.abs(run(int8(path, means=means, is_float16=True), flat())["output0"] - exact).max()
        for means in ({"images": MEANS}, None)
    )

    assert found < without / 2


def test_the_mean_of_a_varying_input_is_kept_too(tmp_path):
    path = convolution(tmp_path / "m.onnx", kernel=3, seed=3)
    feed = {"images": np.random.default_rng(1).integers(-100, 101, (1, 4, 6, 6)).astype(np.float32)}
    means = {"images": feed["images"].mean(axis=(0, 2, 3)).tolist()}
    exact = run(path.read_bytes(), feed)["output0"].mean(axis=(0, 2, 3))

    found = run(int8(path, means=means), feed)["output0"].mean(axis=(0, 2, 3))
    without = run(int8(path), feed)["output0"].mean(axis=(0, 2, 3))

    assert np.abs(found - exact).mean() < np.abs(without - exact).mean()


@pytest.mark.parametrize("case", ["other tensor", "kept in float", "transposed"])
def test_what_is_not_an_int8_convolution_behind_known_means_is_left_as_it_is(tmp_path, case):
    path = convolution(tmp_path / "m.onnx", kind="ConvTranspose" if case == "transposed" else "Conv")
    means = {"elsewhere" if case == "other tensor" else "images": MEANS}
    keep_float = ("conv",) if case == "kept in float" else ()

    assert int8(path, means=means, keep_float=keep_float) == int8(path, keep_float=keep_float)


@pytest.mark.parametrize("count", [0, 3, 8])
def test_means_of_another_number_of_channels_are_refused(tmp_path, count):
    path = convolution(tmp_path / "m.onnx")

    with pytest.raises(ModelError, match=rf'conv reads 4 channels, "images" has {count} means; calibrate again'):
        int8(path, means={"images": [1.0] * count})


def test_a_corrected_model_that_is_read_back_is_not_corrected_again(tmp_path):
    path = convolution(tmp_path / "m.onnx", kernel=3)
    (tmp_path / "q.onnx").write_bytes(int8(path, means={"images": MEANS}))
    ranges, data, keep_float = read_qdq(tmp_path / "q.onnx")
    (tmp_path / "f.onnx").write_bytes(data)
    again = int8(tmp_path / "f.onnx", means={"images": MEANS}, keep_float=keep_float)

    np.testing.assert_allclose(
        run(again, flat())["output0"], run((tmp_path / "q.onnx").read_bytes(), flat())["output0"], atol=1e-5
    )
    assert ranges == pytest.approx({"images": RANGE})


def test_means_are_wanted_of_what_convolutions_read_joined_tensors_included(tmp_path):
    names = csp(tmp_path / "m.onnx")

    wanted = corrected_tensors(load_graph(tmp_path / "m.onnx"))

    assert set(wanted) == {"images", *(names[name] for name in ("b", "cv1", "joined", "sppf", "stem", "neck"))}
    assert len(wanted) == len(set(wanted))


def test_a_detector_in_int8_is_nearer_to_float_with_its_means(tmp_path):
    path, feed = yolox(tmp_path / "m.onnx", batch=1), pictures()
    ranges = minmax(path, feed)
    graph, spec = load_graph(path), inspect_model(path)
    names = corrected_tensors(graph)
    seen = {**feed, **run(path.read_bytes(), feed, [name for name in names if name != "images"])}
    means = {name: seen[name].mean(axis=(0, 2, 3)).tolist() for name in names}
    needed = {name: ranges[name] for name in quantizable_tensors(graph)}
    (exact,) = run(path.read_bytes(), feed).values()

    def error(means):
        made = insert_qdq(graph, spec, ranges=needed, keep_float=(), means=means)
        (found,) = run(made.model, feed).values()
        return np.abs(found - exact).mean()

    assert error(means) < error(None)
