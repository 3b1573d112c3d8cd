"""Models that scale their pixels, or turn the channels round, themselves: they get the pixels that they take.

What comes out has to be what ONNX Runtime makes of the model without that, of the pixels that its family takes.
"""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge.errors import ModelError
from edge.model.editor import resolve
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.pixels import pixels_taken
from edge.types import ColourOrder, ImageSize, Preprocess
from tests.support.exports.product import canvases_for, output_of_onnxruntime, output_of_product
from tests.support.models import Net, ultralytics_metadata, yolov8, yolov8_beside, yolox

MEAN, STD = np.float32([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1), np.float32([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)


def behind(path, *steps, undone=(), readers=None):
    """Put `steps`, (operator, constant or keywords), between input and model; `undone` makes up for what they change.

    The last step makes what the model takes, so that the whole is the same network for other pixels. `readers`: how
    many nodes read it; None: all.
    """
    model = onnx.load(path)
    nodes, last = [], "images"
    for number, (operator, *operand) in enumerate([*steps, *undone]):
        constants = [one for one in operand if not isinstance(one, dict)]
        (keywords,) = [one for one in operand if isinstance(one, dict)] or [{}]
        names = [f"step{number}/{i}" for i in range(len(constants))]
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(one), name) for one, name in zip(constants, names, strict=True)
        )
        nodes.append(helper.make_node(operator, [last, *names], [f"step{number}"], name=f"step{number}", **keywords))
        last = f"step{number}"
    for node in [node for node in model.graph.node if "images" in node.input][:readers]:
        node.input[:] = [last if one == "images" else one for one in node.input]
    own = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *own])
    path.write_bytes(model.SerializeToString())
    return path


def f32(value):
    return np.float32(value)


DIVIDED = [("Div", f32(255))]
TURNED = [("Gather", np.int64([2, 1, 0]), {"axis": 1})]
FLIPPED = [("Slice", np.int64([2]), np.int64([-4]), np.int64([1]), np.int64([-1]))]
CENTRED = [("Sub", f32(127.5)), ("Div", f32(127.5))]
UNCENTRED = [("Mul", f32(0.5)), ("Add", f32(0.5))]
NORMALISED = [("Sub", MEAN), ("Div", STD)]
UNNORMALISED = [("Mul", STD), ("Add", MEAN)]
NORMALISED_BYTES = [("Sub", MEAN * 255), ("Div", STD * 255)]
TIMES_TWO = [("Mul", f32(2)), ("Sub", f32(1))]
TO_BYTES = [("Mul", f32(255))]


@pytest.mark.parametrize(
    ("build", "steps", "undone", "order", "scale"),
    [
        (yolov8, DIVIDED, [], "RGB", 1),
        (yolov8, TURNED, [], "BGR", 1 / 255),
        (yolov8, FLIPPED, [], "BGR", 1 / 255),
        (yolov8, [*TURNED, *DIVIDED], [], "BGR", 1),
        (yolov8, CENTRED, UNCENTRED, "RGB", 1),
        (yolov8, NORMALISED_BYTES, UNNORMALISED, "RGB", 1),
        (yolov8, NORMALISED, UNNORMALISED, "RGB", 1 / 255),
        (yolov8, TIMES_TWO, UNCENTRED, "RGB", 1 / 255),
        (yolox, TO_BYTES, [], "BGR", 1 / 255),
        (yolox, [*TURNED, *TO_BYTES], [], "RGB", 1 / 255),
        (yolox, [("Sub", f32(127.5))], [("Add", f32(127.5))], "BGR", 1),
    ],
)
def test_a_model_gets_the_pixels_that_its_own_arithmetic_takes(tmp_path, build, steps, undone, order, scale):
    plain = inspect_model(build(tmp_path / "plain.onnx"))
    # What is undone stays behind a pooling that changes nothing, as the first convolution would.
    idle = [("MaxPool", {"kernel_shape": [1, 1]})] if undone else []
    own = inspect_model(behind(build(tmp_path / "own.onnx"), *steps, *idle, undone=undone))
    canvases = canvases_for(own)

    assert own.preprocess.colour_order is ColourOrder[order]
    assert own.preprocess.scale == pytest.approx(scale)
    assert np.allclose(output_of_product(own, canvases), output_of_onnxruntime(plain, canvases), atol=2e-3)


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_pixels_that_are_only_moved_are_the_usual_ones(tmp_path, batch):
    twice = [("Identity",), ("Gather", np.int64([2, 1, 0]), {"axis": 1}), ("Gather", np.int64([2, 1, 0]), {"axis": 1})]
    own = inspect_model(behind(yolov8(tmp_path / "own.onnx", batch=batch), *twice))

    assert own.preprocess == inspect_model(yolov8(tmp_path / "plain.onnx")).preprocess
    assert not any("pixels" in sentence for sentence in own.evidence)


@pytest.mark.parametrize(
    "steps",
    [
        [("Gather", np.int64([1, 2, 0]), {"axis": 1})],
        [("Gather", np.int64([0, 0, 0]), {"axis": 1})],
        [("Mul", f32([[[[0.2]]]]))],
        [("Mul", f32(0))],
        [("Div", f32(0))],
        [("Mul", f32("nan"))],
    ],
    ids=["another order", "one channel thrice", "a strange factor", "nothing left", "no number", "nor this"],
)
def test_what_no_pixels_suit_is_refused(tmp_path, steps):
    with pytest.raises(ModelError, match="what it does to the picture first"):
        inspect_model(behind(yolov8(tmp_path / "own.onnx", batch=1), *steps))


def test_a_picture_that_is_taken_in_two_ways_is_refused(tmp_path):
    path = yolov8_beside(
        tmp_path / "own.onnx", 32, prototypes=32, metadata=ultralytics_metadata(3, size=96, task="segment")
    )

    with pytest.raises(ModelError, match="in several ways"):
        inspect_model(behind(path, *DIVIDED, readers=1))


@pytest.mark.parametrize(
    ("steps", "order", "scale"),
    [([], "RGB", 1 / 255), (DIVIDED, "RGB", 1), (TURNED, "BGR", 1 / 255)],
    ids=["as it is", "divided", "turned"],
)
def test_a_picture_that_is_folded_by_focus_is_one_of_the_same_channels(tmp_path, steps, order, scale):
    net = Net(96)
    parts = []
    for first in ((0, 0), (1, 0), (0, 1), (1, 1)):  # YOLOv5 before 6.0, YOLOX: every other row and column
        part = net.image
        for axis, start in zip((2, 3), first, strict=True):
            part = net.op("Slice", part, net.ints(start), net.ints(96), net.ints(axis), net.ints(2))
        parts.append(part)
    net.op("Identity", net.conv(net.op("Concat", *parts, axis=1), 12, 8), name="output0")
    graph = load_graph(behind(net.save(tmp_path / "m.onnx", {"output0": (8, 48, 48)}), *steps))
    usual = Preprocess(size=ImageSize(width=96, height=96))

    taken, told = pixels_taken(resolve(graph, (2, 3, 96, 96)), usual)

    assert (taken.colour_order, taken.scale) == (ColourOrder[order], pytest.approx(scale))
    assert (taken == usual) == (not told) == (not steps)
