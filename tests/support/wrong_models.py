"""Models that are no detector of ours, though many of them have the same shapes: each must be refused."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.support.models import (
    ANCHORS,
    BINS,
    CHANNELS,
    STRIDES,
    Net,
    yolov5_map,
    yolov8_boxes,
    yolov8_head,
    yolov8_levels,
    yolox_head,
)

SIZE = 96
CLASSES = 3


def yolov8_pose(path: Path) -> Path:
    """(B, 4 + 1 + 3 x 4, A): four keypoints of x, y and visibility behind the one score."""
    net = Net(SIZE)
    boxes, scores = yolov8_head(net, 1)
    raw = _per_cell(net, 12)
    points = net.reshape(raw, 4, 3, net.cells())
    place, seen = net.ops("Split", points, net.ints(2, 1), count=2, axis=2)
    place = net.op("Add", net.op("Mul", place, net.const(2.0)), net.const(net.anchor_points()[None, None] - 0.5))
    place = net.op("Mul", place, net.const(net.cell_strides()))
    points = net.op("Concat", place, net.op("Sigmoid", seen), axis=2)
    net.op("Concat", boxes, scores, net.reshape(points, 12, net.cells()), name="output0", axis=1)
    return net.save(path, {"output0": (17, net.cells())})


def yolov8_masks(path: Path) -> Path:
    """(B, 4 + K + 32, A), the second output of a segmentation model cut away."""
    net = Net(SIZE)
    boxes, scores = yolov8_head(net, CLASSES)
    net.op("Concat", boxes, scores, _per_cell(net, 32), name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES + 32, net.cells())})


def yolov8_obb(path: Path) -> Path:
    """(B, 4 + K + 1, A): the last row is an angle."""
    net = Net(SIZE)
    boxes, scores = yolov8_head(net, CLASSES)
    angle = net.op("Sub", net.op("Sigmoid", _per_cell(net, 1)), net.const(0.25))
    angle = net.op("Mul", angle, net.const(np.pi))
    net.op("Concat", boxes, scores, angle, name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES + 1, net.cells())})


def yolov8_corners(path: Path) -> Path:
    """(B, 4 + K, A) with x1 y1 x2 y2."""
    net = Net(SIZE)
    boxes, scores = yolov8_head(net, CLASSES, corners=True)
    net.op("Concat", boxes, scores, name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES, net.cells())})


def yolov8_logits(path: Path) -> Path:
    """(B, 4 + K, A) whose scores have not been through a sigmoid."""
    net = Net(SIZE)
    distances, logits = net.ops("Split", yolov8_levels(net, CLASSES), net.ints(4 * BINS, CLASSES), count=2, axis=1)
    net.op("Concat", yolov8_boxes(net, distances), logits, name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES, net.cells())})


def yolov8_raw_boxes(path: Path) -> Path:
    """(B, 4 + K, A) whose boxes are the plain numbers of a convolution."""
    net = Net(SIZE)
    net.op("Concat", _per_cell(net, 4), net.op("Sigmoid", _per_cell(net, CLASSES)), name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES, net.cells())})


def yolov8_attributes(path: Path) -> Path:
    """(B, 4 + K + 2, A): behind the scores two attributes of each object, sigmoids as well."""
    net = Net(SIZE)
    boxes, scores = yolov8_head(net, CLASSES)
    net.op("Concat", boxes, scores, net.op("Sigmoid", _per_cell(net, 2)), name="output0", axis=1)
    return net.save(path, {"output0": (4 + CLASSES + 2, net.cells())})


def yolov5_without_grid(path: Path) -> Path:
    """(B, 3 x cells, 5 + K) of plain sigmoids: the levels joined before their decoding."""
    net = Net(SIZE)
    rows, parts = 5 + CLASSES, []
    for level, feature in enumerate(net.levels()):
        raw = net.op("Sigmoid", yolov5_map(net, feature, level, rows))
        parts.append(net.reshape(raw, 3 * (SIZE // STRIDES[level]) ** 2, rows))
    net.op("Concat", *parts, name="output", axis=1)
    return net.save(path, {"output": (3 * net.cells(), rows)})


def yolov5_face(path: Path) -> Path:
    """(B, A, 16): five landmarks lie between objectness and score."""
    net = Net(SIZE)
    parts = []
    for level, feature in enumerate(net.levels()):
        side = SIZE // STRIDES[level]
        raw = yolov5_map(net, feature, level, 16)
        pieces = net.ops("Split", raw, net.ints(2, 2, 1, 10, 1), count=5, axis=4)
        centre, extent, objectness, score = (net.op("Sigmoid", pieces[i]) for i in (0, 1, 2, 4))
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1)[None, None] - 0.5
        centre = net.op("Add", net.op("Mul", centre, net.const(2.0 * STRIDES[level])), net.const(grid * STRIDES[level]))
        anchors = np.reshape(ANCHORS[level], (1, 3, 1, 1, 2))
        extent = net.op("Mul", net.op("Pow", extent, net.const(2.0)), net.const(4.0 * anchors))
        marks = net.op("Mul", pieces[3], net.const(np.tile(anchors, 5)))
        joined = net.op("Concat", centre, extent, objectness, marks, score, axis=4)
        parts.append(net.reshape(joined, 3 * side * side, 16))
    net.op("Concat", *parts, name="output", axis=1)
    return net.save(path, {"output": (3 * net.cells(), 16)})


def yolov5_raw(path: Path) -> Path:
    """Three maps (B, 3, H, W, 5 + K), not decoded."""
    net = Net(SIZE)
    outputs = {}
    for level, feature in enumerate(net.levels()):
        yolov5_map(net, feature, level, 5 + CLASSES, name=f"output{level}")
        outputs[f"output{level}"] = (3, SIZE // STRIDES[level], SIZE // STRIDES[level], 5 + CLASSES)
    return net.save(path, outputs)


def yolov6(path: Path) -> Path:
    """(B, A, 5 + K) decoded, with an objectness of ones."""
    net = Net(SIZE, batch=1)
    boxes, scores = (net.op("Transpose", x, perm=[0, 2, 1]) for x in yolov8_head(net, CLASSES))
    ones = net.const(np.ones((1, net.cells(), 1)))
    net.op("Concat", boxes, ones, scores, name="outputs", axis=2)
    return net.save(path, {"outputs": (net.cells(), 5 + CLASSES)})


def yolox_decoded(path: Path) -> Path:
    """(B, A, 5 + K) with grid, stride and exponential in the graph."""
    net = Net(SIZE)
    raw = net.op("Transpose", yolox_head(net, CLASSES), perm=[0, 2, 1])
    centre, extent, scores = net.ops("Split", raw, net.ints(2, 2, CLASSES + 1), count=3, axis=2)
    strides = net.const(net.cell_strides()[None, :, None])
    centre = net.op("Mul", net.op("Add", centre, net.const(net.anchor_points().T[None] - 0.5)), strides)
    extent = net.op("Mul", net.op("Exp", extent), strides)
    net.op("Concat", centre, extent, scores, name="output", axis=2)
    return net.save(path, {"output": (net.cells(), 5 + CLASSES)})


def yolox_coarsest_first(path: Path) -> Path:
    """(B, A, 5 + K) raw, its levels in the order 32, 16, 8."""
    net = Net(SIZE)
    net.op("Transpose", yolox_head(net, CLASSES, coarsest_first=True), perm=[0, 2, 1], name="output")
    return net.save(path, {"output": (net.cells(), 5 + CLASSES)})


def centre_head(path: Path) -> Path:
    """(B, A, 5 + K) in the shape of YOLOX, boxes decoded as distances in pixels without an exponential."""
    net = Net(SIZE)
    raw = net.op("Transpose", yolox_head(net, CLASSES), perm=[0, 2, 1])
    boxes, scores = net.ops("Split", raw, net.ints(4, CLASSES + 1), count=2, axis=2)
    boxes = net.op("Mul", boxes, net.const(net.cell_strides()[None, :, None]))
    net.op("Concat", boxes, scores, name="output", axis=2)
    return net.save(path, {"output": (net.cells(), 5 + CLASSES)})


def detr(path: Path, *, queries: int = 300, classes: int = CLASSES, metadata: dict | None = None) -> Path:
    """RT-DETR: (B, queries, 4 + K), both sigmoids; with two classes its shape is that of YOLOv10."""
    net = Net(SIZE)
    tokens = net.op("Transpose", _per_cell(net, 16), perm=[0, 2, 1])
    best = net.op("ReduceMax", tokens, axes=[2], keepdims=0)
    index = net.op(
        "Unsqueeze", net.ops("TopK", best, net.ints(min(queries, net.cells())), count=2, axis=1)[1], net.ints(2)
    )
    tokens = net.op("GatherElements", tokens, net.op("Tile", index, net.ints(1, 1, 16)), axis=1)
    mixed = net.op("MatMul", net.const(net.random.normal(0, 0.1, (queries, min(queries, net.cells())))), tokens)
    boxes = net.op("Sigmoid", net.op("MatMul", mixed, net.const(net.random.normal(0, 1, (16, 4)))))
    scores = net.op("Sigmoid", net.op("MatMul", mixed, net.const(net.random.normal(0, 1, (16, classes)))))
    net.op("Concat", boxes, scores, name="output0", axis=2)
    return net.save(path, {"output0": (queries, 4 + classes)}, metadata=metadata)


def ssd(path: Path) -> Path:
    """Two outputs, boxes and scores."""
    net = Net(SIZE)
    flat = net.op("Transpose", _per_cell(net, 4), perm=[0, 2, 1])
    net.op("Identity", flat, name="boxes")
    net.op("Softmax", net.op("Transpose", _per_cell(net, 5), perm=[0, 2, 1]), name="scores", axis=2)
    return net.save(path, {"boxes": (net.cells(), 4), "scores": (net.cells(), 5)})


def classifier(path: Path, *, dtype: int = TensorProto.FLOAT, channels_last: bool = False) -> Path:
    """One row of ten scores."""
    net = Net(SIZE)
    if channels_last:
        picture = net.op("Transpose", net.image, perm=[0, 3, 1, 2])
    else:
        picture = net.op("Cast", net.image, to=TensorProto.FLOAT) if dtype != TensorProto.FLOAT else net.image
    pooled = net.op("Flatten", net.op("GlobalAveragePool", net.conv(picture, 3, CHANNELS, kernel=3)), axis=1)
    net.op("Gemm", pooled, net.const(net.random.normal(0, 1, (CHANNELS, 10))), name="logits")
    shape = ("batch", SIZE, SIZE, 3) if channels_last else None
    return net.save(path, {"logits": (10,)}, dtype=dtype, input_shape=shape)


def with_qdq(source: Path, path: Path) -> Path:
    """The model at `source` with a pair of Q/DQ nodes behind its input."""
    model = onnx.load(source)
    scale, zero = (helper.make_tensor(f"qdq_{n}", t, [], [v]) for n, t, v in _SCALE)
    model.graph.initializer.extend([scale, zero])
    picture = model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["quantized_back" if name == picture else name for name in node.input]
    pair = [
        helper.make_node("QuantizeLinear", [picture, "qdq_scale", "qdq_zero"], ["quantized"], name="q"),
        helper.make_node("DequantizeLinear", ["quantized", "qdq_scale", "qdq_zero"], ["quantized_back"], name="dq"),
    ]
    nodes = [*pair, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path.write_bytes(model.SerializeToString())
    return path


_SCALE = (("scale", TensorProto.FLOAT, 1 / 127), ("zero", TensorProto.INT8, 0))


def _per_cell(net: Net, rows: int) -> str:
    """Raw numbers for each cell: (B, rows, A)."""
    maps = []
    for feature, side in zip(net.levels(), net.sides(), strict=True):
        maps.append(net.reshape(net.conv(feature, CHANNELS, rows), rows, side * side))
    return net.op("Concat", *maps, axis=2)
