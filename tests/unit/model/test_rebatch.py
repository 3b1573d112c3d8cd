"""A rewritten model gives for a batch what the original gives for each image; what is unsafe is left alone."""

import math

import numpy as np
import onnx
import onnxruntime
import pytest

from edge.model.graph import graph_from_bytes
from edge.model.inspect import inspect_model
from edge.model.rebatch import largest_difference, rebatch
from edge.types import ModelSpec
from tests.support.models import CHANNELS, Net, yolov5, yolov8, yolov8_head, yolov10, yolox
from tests.support.qdq import quantized
from tests.support.wrong_models import yolov6


def _runner(model):
    session = onnxruntime.InferenceSession(model)
    return lambda images: session.run(None, {"images": images})[0]


def _images(count=3, size=96):
    return np.random.default_rng(7).random((count, 3, size, size), np.float32)


@pytest.mark.parametrize("build", [yolov5, yolov8, yolov10, yolox])
def test_rewritten_model_equals_single_runs(tmp_path, build):
    path = build(tmp_path / "one.onnx", batch=1)

    rewritten = rebatch(path, inspect_model(path))

    assert rewritten.model is not None
    difference = largest_difference(_runner(path.read_bytes()), _runner(rewritten.model), _images())
    assert difference == 0.0


@pytest.mark.parametrize("build", [yolov5, yolov8, yolov10])
def test_model_with_pairs_keeps_its_weights_in_int8(tmp_path, build):
    path = build(tmp_path / "one.onnx", batch=1)
    with_pairs = quantized(path).model

    rewritten = rebatch(graph_from_bytes(with_pairs, "test"), inspect_model(path))

    assert rewritten.model is not None, rewritten.reason
    assert largest_difference(_runner(with_pairs), _runner(rewritten.model), _images()) == 0.0
    before, after = (onnx.load_model_from_string(model).graph for model in (with_pairs, rewritten.model))
    assert _count(after, "DequantizeLinear") == _count(before, "DequantizeLinear") > 0


def _count(graph, op_type):
    return sum(node.op_type == op_type for node in graph.node)


def test_rewritten_model_is_inspected_as_dynamic(tmp_path):
    path = yolov8(tmp_path / "one.onnx", batch=1)
    original = inspect_model(path)
    path.write_bytes(rebatch(path, original).model)

    spec = inspect_model(path)

    assert spec.batch is None
    assert (spec.family, spec.strides, spec.labels) == (original.family, original.strides, original.labels)
    assert not onnx.load(path).graph.value_info


def _rebatch_yolov8_with(tmp_path, change):
    """Build a static model whose boxes go through `change(net, boxes)` before the output."""
    net = Net(96, batch=1)
    boxes, scores = yolov8_head(net, 3)
    net.op("Concat", change(net, boxes), scores, name="output0", axis=1)
    path = net.save(tmp_path / "one.onnx", {"output0": (7, net.cells())})
    original = inspect_model(yolov8(tmp_path / "plain.onnx", batch=1))
    return path, rebatch(path, _respelled(original, path))


def _respelled(spec, path):
    return ModelSpec(**{name: getattr(spec, name) for name in spec.__slots__} | {"path": path})


def test_size_in_a_resize_becomes_a_factor(tmp_path):
    def change(net, boxes):
        small = net.conv(net.image, 3, CHANNELS, kernel=3, stride=2)
        large = net.op("Resize", small, "", "", net.ints(1, CHANNELS, 96, 96), mode="nearest")
        mean = net.op("ReduceMean", large, axes=[1, 2, 3], keepdims=1)
        return net.op("Add", boxes, net.reshape(mean, 1, 1))

    path, rewritten = _rebatch_yolov8_with(tmp_path, change)

    assert rewritten.model is not None, rewritten.reason
    assert largest_difference(_runner(path.read_bytes()), _runner(rewritten.model), _images()) == 0.0


def test_attention_that_folds_areas_into_the_batch_stays_right(tmp_path):
    """As YOLO12 does: (1, C, H, W) to (4, C / 4, H W), matrix products there, and back."""

    def change(net, boxes):
        x = net.conv(net.image, 3, 16, kernel=3, stride=8)
        areas = net.op("Reshape", x, net.ints(4, 4, 144))
        weights = net.op("Softmax", net.op("MatMul", net.op("Transpose", areas, perm=[0, 2, 1]), areas), axis=2)
        mixed = net.op("MatMul", areas, weights)
        back = net.op("Reshape", mixed, net.ints(1, 16, 144))
        return net.op("Add", boxes, net.op("ReduceMean", back, axes=[1, 2], keepdims=1))

    path, rewritten = _rebatch_yolov8_with(tmp_path, change)

    assert rewritten.model is not None, rewritten.reason
    assert largest_difference(_runner(path.read_bytes()), _runner(rewritten.model), _images()) <= 1e-4


UNSAFE = {
    "mean over the batch": (
        lambda net, boxes: net.op("Add", boxes, net.op("ReduceMean", boxes, axes=[0], keepdims=1)),
        "ReduceMean",
    ),
    "softmax over the batch": (lambda net, boxes: net.op("Softmax", boxes, axis=0), "Softmax"),
    "sum over the batch": (
        lambda net, boxes: net.op("Mul", boxes, net.op("CumSum", boxes, net.const(0, np.int64))),
        "CumSum",
    ),
    "a flat matrix": (
        lambda net, boxes: net.op("Unsqueeze", net.op("Squeeze", boxes, net.ints(0)), net.ints(0)),
        "Squeeze",
    ),
    "an axis moved": (
        lambda net, boxes: net.op("Transpose", net.op("Transpose", boxes, perm=[1, 0, 2]), perm=[1, 0, 2]),
        "Transpose",
    ),
    "a constant for each area": (
        lambda net, boxes: net.op(
            "Reshape",
            net.op("Add", net.op("Reshape", boxes, net.ints(4, 1, 189)), net.const(np.ones((4, 1, 189)))),
            net.ints(1, 4, 189),
        ),
        "Add",
    ),
    "an image spread over its areas": (
        lambda net, boxes: net.op(
            "Reshape",
            net.op(
                "Add",
                net.op("Reshape", boxes, net.ints(4, 1, 189)),
                net.op("ReduceMean", boxes, axes=[1], keepdims=1),
            ),
            net.ints(1, 4, 189),
        ),
        "Add",
    ),
    "areas beside each other": (
        lambda net, boxes: net.op(
            "Reshape", net.op("Softmax", net.op("Reshape", boxes, net.ints(4, 189)), axis=0), net.ints(1, 4, 189)
        ),
        "Softmax",
    ),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_what_may_mix_images_is_left_alone(tmp_path, case):
    change, culprit = UNSAFE[case]

    _, rewritten = _rebatch_yolov8_with(tmp_path, change)

    assert rewritten.model is None
    assert culprit in rewritten.reason


def test_constant_joined_with_the_images_is_left_alone(tmp_path):
    path = yolov6(tmp_path / "v6.onnx")
    spec = _respelled(inspect_model(yolox(tmp_path / "x.onnx", batch=1)), path)

    rewritten = rebatch(path, spec)

    assert rewritten.model is None
    assert "joins a constant of batch one" in rewritten.reason


def test_rows_gathered_by_image_number_are_left_alone(tmp_path):
    path = yolov10(tmp_path / "one.onnx", batch=1, indexed=True)

    rewritten = rebatch(path, inspect_model(path))

    assert rewritten.model is None
    assert "joins a constant" in rewritten.reason


@pytest.mark.parametrize(("batch", "reason"), [(None, "dynamic already"), (2, "fixed to 2, expected 1")])
def test_other_batches_need_nothing_or_cannot_be_changed(tmp_path, batch, reason):
    path = yolov8(tmp_path / "tiny.onnx", batch=batch)

    rewritten = rebatch(path, inspect_model(path))

    assert rewritten.model is None
    assert reason in rewritten.reason


def test_difference_is_found_in_one_image_of_many():
    images = np.arange(12, dtype=np.float32).reshape(4, 3)

    def batched(rows):
        wrong = rows.copy()
        wrong[2] += 0.5
        return wrong

    assert largest_difference(lambda row: row, batched, images) == 0.5
    assert largest_difference(lambda row: row, lambda rows: rows, images) == 0.0


def test_difference_of_other_shapes_is_infinite():
    images = np.zeros((2, 3), np.float32)

    assert largest_difference(lambda row: row, lambda rows: rows[:1], images) == math.inf


def test_number_of_images_as_an_operand_stays_one(tmp_path):
    def change(net, boxes):
        rows = net.op("Gather", net.op("Shape", boxes), net.const(0, np.int64), axis=0)
        return net.op("Mul", boxes, net.op("Cast", rows, to=onnx.TensorProto.FLOAT))

    path, rewritten = _rebatch_yolov8_with(tmp_path, change)

    assert rewritten.model is not None, rewritten.reason
    assert largest_difference(_runner(path.read_bytes()), _runner(rewritten.model), _images()) == 0.0
