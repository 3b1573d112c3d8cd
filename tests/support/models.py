"""Tiny detectors whose tails are those of the real exporters, with seeded weights; any ONNX engine can run them.

    yolov8(path, size=96, classes=3, batch=None)     batch None: dynamic, computed in the graph as exporters do

All have three levels of strides 8, 16 and 32. Wrong ones (other tasks, other detectors) are in
`tests.support.wrong_models`.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STRIDES = (8, 16, 32)
ANCHORS = ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326))
CHANNELS = 8
BINS = 16
BATCH = "batch"


def ultralytics_metadata(classes: int, *, size: int, task: str = "detect", model: str = "YOLOv8n", **more: str) -> dict:
    """The texts that Ultralytics' exporter leaves in a file."""
    names = {i: f"thing {i}" for i in range(classes)}
    return {
        "description": f"Ultralytics {model} model trained on things.yaml",
        "author": "Ultralytics",
        "version": "8.3.40",
        "stride": "32",
        "task": task,
        "batch": "1",
        "imgsz": f"[{size}, {size}]",
        "names": str(names),
        **more,
    }


class Net:
    """Collects nodes; every method returns the name of the tensor that it makes."""

    def __init__(self, size: int, *, batch: int | None = None, seed: int = 0, dynamic_size: bool = False,
                 depth: int = 1) -> None:  # fmt: skip
        self.size = size
        self.depth = depth
        self.batch = batch
        self.dynamic_size = dynamic_size
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.image = "images"

    def op(self, kind: str, *inputs: str, name: str | None = None, **attributes) -> str:
        return self.ops(kind, *inputs, names=[name or f"{kind}_{len(self.nodes)}"], **attributes)[0]

    def ops(self, kind: str, *inputs: str, count: int = 1, names: list[str] | None = None, **attributes) -> list[str]:
        outputs = names or [f"{kind}_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs

    def const(self, value, dtype=np.float32) -> str:
        name = f"const_{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def conv(self, x: str, into: int, out: int, *, kernel: int = 1, stride: int = 1, bias=None, group: int = 1) -> str:
        fan = into // group * kernel * kernel
        weight = self.random.normal(0, 1.5 / np.sqrt(fan), (out, into // group, kernel, kernel))
        offset = self.random.normal(0, 0.5, out) if bias is None else np.broadcast_to(bias, out)
        return self.op(
            "Conv", x, self.const(weight), self.const(offset),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group,
        )  # fmt: skip

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def halves(self, x: str) -> list[str]:
        """Rows 0 and 1, and rows 2 and 3, of (B, 4, A); computed from the shape as torch traces `chunk`."""
        if self.batch is not None:
            return [self.op("Slice", x, self.ints(i), self.ints(i + 2), self.ints(1)) for i in (0, 2)]
        rows = self.op("Gather", self.op("Shape", x), self.ints(1), axis=0)
        step = self.op("Div", self.op("Add", rows, self.ints(1)), self.ints(2))
        edges = [self.op("Mul", step, self.ints(i)) for i in range(3)]
        return [self.op("Slice", x, edges[i], edges[i + 1], self.ints(1)) for i in range(2)]

    def levels(self) -> list[str]:
        """A backbone: features of strides 8, 16 and 32, each of CHANNELS channels."""
        x = self.silu(self.conv(self.image, 3, CHANNELS, kernel=3, stride=2))
        x = self.silu(self.conv(x, CHANNELS, CHANNELS, kernel=3, stride=2))
        features = []
        for _ in STRIDES:
            x = self.silu(self.conv(x, CHANNELS, CHANNELS, kernel=3, stride=2))
            for _ in range(self.depth):
                x = self.op("Add", x, self.silu(self.conv(x, CHANNELS, CHANNELS, kernel=3, group=CHANNELS)))
            features.append(x)
        return features

    def reshape(self, x: str, *dims: int) -> str:
        """Reshape to (batch, *dims); a dynamic batch is computed from the shape of `x`, as torch exports it."""
        if self.batch is not None:
            return self.op("Reshape", x, self.ints(self.batch, *dims))
        rows = self.op("Gather", self.op("Shape", x), self.const(0, np.int64), axis=0)
        rows = self.op("Unsqueeze", rows, self.ints(0))
        return self.op("Reshape", x, self.op("Concat", rows, self.ints(*dims), axis=0))

    def sides(self) -> list[int]:
        return [self.size // stride for stride in STRIDES]

    def cells(self) -> int:
        return sum(side * side for side in self.sides())

    def anchor_points(self) -> np.ndarray:
        """Centres of the cells, (2, A), in units of cells."""
        grids = [np.stack(np.meshgrid(np.arange(n), np.arange(n))) + 0.5 for n in self.sides()]
        return np.concatenate([grid.reshape(2, -1) for grid in grids], axis=1)

    def cell_strides(self) -> np.ndarray:
        return np.concatenate([np.full(n * n, s) for n, s in zip(self.sides(), STRIDES, strict=True)])

    def save(self, path: Path, outputs: dict[str, tuple], *, metadata: dict | None = None, opset: int = 17,
             dtype: int = TensorProto.FLOAT, input_shape: tuple | None = None) -> Path:  # fmt: skip
        rows = self.batch if self.batch is not None else BATCH
        side: tuple = ("height", "width") if self.dynamic_size else (self.size, self.size)
        picture = helper.make_tensor_value_info(self.image, dtype, input_shape or (rows, 3, *side))
        infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, *dims)) for name, dims in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "tiny", [picture], infos, self.stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="pytorch")
        model.ir_version = 8
        helper.set_model_props(model, metadata or {})
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
        return path


def yolov8_boxes(net: Net, distances: str, *, corners: bool = False) -> str:
    """DFL and dist2bbox: (B, 64, A) to (B, 4, A) centre and size in pixels, or corners."""
    cells = net.cells()
    x = net.op("Transpose", net.reshape(distances, 4, BINS, cells), perm=[0, 2, 1, 3])
    x = net.op("Softmax", x, axis=1)
    bins = net.const(np.arange(BINS).reshape(1, BINS, 1, 1))
    x = net.reshape(net.op("Conv", x, bins, kernel_shape=[1, 1]), 4, cells)
    near, far = net.halves(x)
    anchors = net.const(net.anchor_points()[None])
    first, second = net.op("Sub", anchors, near), net.op("Add", anchors, far)
    if not corners:
        centre = net.op("Div", net.op("Add", first, second), net.const(2.0))
        first, second = centre, net.op("Sub", second, first)
    boxes = net.op("Concat", first, second, axis=1)
    return net.op("Mul", boxes, net.const(net.cell_strides()[None]))


def yolov8_levels(net: Net, classes: int) -> str:
    """Distances and logits of all levels: (B, 64 + K, A)."""
    maps = []
    for feature, side in zip(net.levels(), net.sides(), strict=True):
        distances = net.conv(feature, CHANNELS, 4 * BINS)
        logits = net.conv(feature, CHANNELS, classes, bias=-2.0)
        maps.append(net.reshape(net.op("Concat", distances, logits, axis=1), 4 * BINS + classes, side * side))
    return net.op("Concat", *maps, axis=2)


def yolov8_head(net: Net, classes: int, *, corners: bool = False) -> tuple[str, str]:
    """Boxes (B, 4, A) and scores (B, K, A)."""
    sizes = net.ints(4 * BINS, classes)
    distances, logits = net.ops("Split", yolov8_levels(net, classes), sizes, count=2, axis=1)
    return yolov8_boxes(net, distances, corners=corners), net.op("Sigmoid", logits)


def yolov8(path: Path, *, size: int = 96, classes: int = 3, batch: int | None = None, seed: int = 0,
           metadata: dict | None = None, dynamic_size: bool = False, depth: int = 1) -> Path:  # fmt: skip
    """YOLOv8, v9, 11, 12: (B, 4 + K, A); `depth` convolutions in each level of the backbone."""
    net = Net(size, batch=batch, seed=seed, dynamic_size=dynamic_size, depth=depth)
    boxes, scores = yolov8_head(net, classes)
    net.op("Concat", boxes, scores, name="output0", axis=1)
    return net.save(path, {"output0": (4 + classes, net.cells())}, metadata=metadata)


def yolov8_beside(path: Path, rows: int, *, classes: int = 3, batch: int | None = None, metadata: dict | None = None,
                  prototypes: int = 0) -> Path:  # fmt: skip
    """(B, 4 + K + rows, A): raw numbers of another task behind the scores, and prototypes of masks beside them."""
    net = Net(96, batch=batch)
    boxes, scores = yolov8_head(net, classes)
    maps = [
        net.reshape(net.conv(feature, CHANNELS, rows), rows, side * side)
        for feature, side in zip(net.levels(), net.sides(), strict=True)
    ]
    net.op("Concat", boxes, scores, net.op("Concat", *maps, axis=2), name="output0", axis=1)
    outputs: dict[str, tuple] = {"output0": (4 + classes + rows, net.cells())}
    if prototypes:
        net.op("Sigmoid", net.conv(net.image, 3, prototypes, kernel=3, stride=2), name="output1")
        outputs["output1"] = (prototypes, 48, 48)
    return net.save(path, outputs, metadata=metadata)


def yolov5(path: Path, *, size: int = 96, classes: int = 3, batch: int | None = None, seed: int = 0,
           metadata: dict | None = None) -> Path:  # fmt: skip
    """YOLOv5, v7 decoded: (B, 3 x cells, 5 + K)."""
    net = Net(size, batch=batch, seed=seed)
    parts = [yolov5_level(net, feature, i, classes) for i, feature in enumerate(net.levels())]
    net.op("Concat", *parts, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), 5 + classes)}, metadata=metadata)


def yolov5_dynamic(path: Path, *, classes: int = 3) -> Path:
    """YOLOv5's own `export.py --dynamic`: any batch and size, which the file does not note; grids made in the graph."""
    net = Net(640, dynamic_size=True)
    parts = [_yolov5_level_of_any_size(net, feature, i, 5 + classes) for i, feature in enumerate(net.levels())]
    net.op("Concat", *parts, name="output0", axis=1)
    names = {"stride": "32", "names": str({i: f"thing {i}" for i in range(classes)})}
    return net.save(path, {"output0": ("anchors", 5 + classes)}, metadata=names)


def _yolov5_level_of_any_size(net: Net, feature: str, level: int, rows: int) -> str:
    x = net.conv(feature, CHANNELS, 3 * rows, bias=-1.0)
    shape = net.op("Shape", x)
    batch, height, width = (net.op("Slice", shape, net.ints(i), net.ints(i + 1)) for i in (0, 2, 3))
    x = net.op("Reshape", x, net.op("Concat", batch, net.ints(3, rows), height, width, axis=0))
    x = net.op("Sigmoid", net.op("Transpose", x, perm=[0, 1, 3, 4, 2]))
    cells = [
        net.op("Range", net.const(0, np.int64), net.op("Squeeze", n), net.const(1, np.int64)) for n in (height, width)
    ]
    yx = [net.op("Reshape", one, net.ints(*dims)) for one, dims in zip(cells, ((-1, 1), (1, -1)), strict=True)]
    y, x_of_cell = (net.op("Expand", one, net.op("Concat", height, width, axis=0)) for one in yx)
    grid = net.op("Concat", *(net.op("Unsqueeze", one, net.ints(2)) for one in (x_of_cell, y)), axis=2)
    of_all = net.op("Concat", net.ints(1, 3), height, width, net.ints(2), axis=0)
    grid = net.op("Sub", net.op("Expand", net.op("Cast", grid, to=TensorProto.FLOAT), of_all), net.const(0.5))
    anchors = net.op("Expand", net.const(np.reshape(ANCHORS[level], (1, 3, 1, 1, 2))), of_all)
    centre, extent, scores = net.ops("Split", x, net.ints(2, 2, rows - 4), count=3, axis=4)
    centre = net.op("Add", net.op("Mul", centre, net.const(2.0)), grid)
    centre = net.op("Mul", centre, net.const(float(STRIDES[level])))
    squared = net.op("Pow", net.op("Mul", extent, net.const(2.0)), net.const(2.0))
    joined = net.op("Concat", centre, net.op("Mul", squared, anchors), scores, axis=4)
    return net.op("Reshape", joined, net.op("Concat", batch, net.ints(-1, rows), axis=0))


def yolov5_segment(path: Path, *, classes: int = 3, metadata: dict | None = None) -> Path:
    """YOLOv5's segmentation: (B, 3 x cells, 5 + K + 8), and prototypes of 8 channels."""
    net = Net(96)
    parts = [yolov5_level(net, feature, i, classes, 8) for i, feature in enumerate(net.levels())]
    net.op("Concat", *parts, name="output0", axis=1)
    net.op("Sigmoid", net.conv(net.image, 3, 8, kernel=3, stride=2), name="output1")
    return net.save(path, {"output0": (3 * net.cells(), 13 + classes), "output1": (8, 48, 48)}, metadata=metadata)


def yolov5_lite(path: Path) -> Path:
    """YOLOv5-Lite with --grid, YOLOv5 before 6.1: boxes written in place, and beside them the maps that they are of."""
    net = Net(96, batch=1)
    rows, parts, outputs = 8, [], {}
    for level, (feature, side) in enumerate(zip(net.levels(), net.sides(), strict=True)):
        x = yolov5_map(net, feature, level, rows, name=f"map{level}")
        y = net.op("Sigmoid", x)
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1)[None, None]
        centre = net.op("Sub", net.op("Mul", _columns(net, y, 0), net.const(2.0)), net.const(0.5))
        centre = net.op("Mul", net.op("Add", centre, net.const(grid)), net.const(float(STRIDES[level])))
        y = _written(net, y, centre, 0, (1, 3, side, side, 2))
        extent = net.op("Pow", net.op("Mul", _columns(net, y, 2), net.const(2.0)), net.const(2.0))
        extent = net.op("Mul", extent, net.const(np.reshape(ANCHORS[level], (1, 3, 1, 1, 2))))
        parts.append(net.reshape(_written(net, y, extent, 2, (1, 3, side, side, 2)), 3 * side * side, rows))
        outputs[f"map{level}"] = (3, side, side, rows)
    net.op("Concat", *parts, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), rows), **outputs})


def _columns(net: Net, x: str, first: int) -> str:
    return net.op("Slice", x, net.ints(first), net.ints(first + 2), net.ints(4))


def _written(net: Net, x: str, value: str, first: int, shape: tuple[int, ...]) -> str:
    """`x[..., first : first + 2] = value`, of that shape."""
    places = np.moveaxis(np.indices(shape), 0, -1)
    places[..., 4] += first
    return net.op("ScatterND", x, net.const(places, np.int64), value)


def yolov5_map(net: Net, feature: str, level: int, rows: int, *, name: str | None = None) -> str:
    """One raw level: (B, 3, H, W, 5 + K)."""
    side = net.sides()[level]
    x = net.reshape(net.conv(feature, CHANNELS, 3 * rows, bias=-1.0), 3, rows, side, side)
    return net.op("Transpose", x, perm=[0, 1, 3, 4, 2], name=name)


def yolov5_level(net: Net, feature: str, level: int, classes: int, masks: int = 0) -> str:
    rows, side, stride = 5 + classes + masks, net.sides()[level], STRIDES[level]
    x = yolov5_map(net, feature, level, rows)
    coefficients = []
    if masks:
        x, *coefficients = net.ops("Split", x, net.ints(5 + classes, masks), count=2, axis=4)
    centre, extent, scores = net.ops("Split", net.op("Sigmoid", x), net.ints(2, 2, classes + 1), count=3, axis=4)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1) - 0.5
    doubled = net.op("Add", net.op("Mul", centre, net.const(2.0)), net.const(grid[None, None]))
    centre = net.op("Mul", doubled, net.const(float(stride)))
    squared = net.op("Pow", net.op("Mul", extent, net.const(2.0)), net.const(2.0))
    extent = net.op("Mul", squared, net.const(np.reshape(ANCHORS[level], (1, 3, 1, 1, 2))))
    return net.reshape(net.op("Concat", centre, extent, scores, *coefficients, axis=4), 3 * side * side, rows)


def yolox_head(net: Net, classes: int, *, coarsest_first: bool = False) -> str:
    """All levels, raw: (B, 5 + K, A)."""
    maps = []
    for feature, side in zip(net.levels(), net.sides(), strict=True):
        box = net.conv(feature, CHANNELS, 4)
        objectness = net.op("Sigmoid", net.conv(feature, CHANNELS, 1, bias=0.0))
        scores = net.op("Sigmoid", net.conv(feature, CHANNELS, classes, bias=0.0))
        maps.append(net.reshape(net.op("Concat", box, objectness, scores, axis=1), 5 + classes, side * side))
    return net.op("Concat", *(maps[::-1] if coarsest_first else maps), axis=2)


def yolox(path: Path, *, size: int = 96, classes: int = 3, batch: int | None = None, seed: int = 0) -> Path:
    """YOLOX without decoding: (B, A, 5 + K)."""
    net = Net(size, batch=batch, seed=seed)
    net.op("Transpose", yolox_head(net, classes), perm=[0, 2, 1], name="output")
    return net.save(path, {"output": (net.cells(), 5 + classes)})


def yolov10(path: Path, *, size: int = 96, classes: int = 3, batch: int | None = None, seed: int = 0, top: int = 20,
            metadata: dict | None = None, indexed: bool = False) -> Path:  # fmt: skip
    """YOLOv10, 26 end to end: (B, top, 6); `indexed` gathers by [image, row] as `boxes[i, index // nc]` is exported."""
    net = Net(size, batch=batch, seed=seed)
    boxes, scores = yolov8_head(net, classes, corners=True)
    rows = yolov10_rows(net, boxes, scores, classes=classes, top=top, indexed=indexed)
    return net.save(path, {rows: (top, 6)}, metadata=metadata)


def yolov10_rows(net: Net, boxes: str, scores: str, *, classes: int, top: int, indexed: bool = False) -> str:
    """The best rows of boxes (B, 4, A) and scores (B, K, A): (B, top, 6)."""
    batch = net.batch
    boxes, scores = (net.op("Transpose", x, perm=[0, 2, 1]) for x in (boxes, scores))
    best = net.op("ReduceMax", scores, axes=[2], keepdims=0)
    cell = net.op("Unsqueeze", net.ops("TopK", best, net.ints(top), count=2, axis=1)[1], net.ints(2))
    boxes = net.op("GatherElements", boxes, net.op("Tile", cell, net.ints(1, 1, 4)), axis=1)
    scores = net.op("GatherElements", scores, net.op("Tile", cell, net.ints(1, 1, classes)), axis=1)
    values, index = net.ops("TopK", net.reshape(scores, top * classes), net.ints(top), count=2, axis=1)
    divisor = net.const(classes, np.int64)
    row = net.op("Unsqueeze", net.op("Div", index, divisor), net.ints(2))
    if indexed:
        image = net.const(np.broadcast_to(np.arange(batch or 1)[:, None, None], (batch or 1, top, 1)), np.int64)
        boxes = net.op("GatherND", boxes, net.op("Concat", image, row, axis=2))
    else:
        boxes = net.op("GatherElements", boxes, net.op("Tile", row, net.ints(1, 1, 4)), axis=1)
    label = net.op("Cast", net.op("Unsqueeze", net.op("Mod", index, divisor), net.ints(2)), to=TensorProto.FLOAT)
    values = net.op("Unsqueeze", values, net.ints(2))
    return net.op("Concat", boxes, values, label, name="output0", axis=2)


def yolov8_with_nms(path: Path, *, classes: int = 3, metadata: dict | None = None) -> Path:
    """(B, A, 6): corners, best score and its class, chosen by something else than a TopK; only metadata can tell."""
    net = Net(96)
    boxes, scores = (net.op("Transpose", x, perm=[0, 2, 1]) for x in yolov8_head(net, classes, corners=True))
    label = net.op("Cast", net.op("ArgMax", scores, axis=2), to=TensorProto.FLOAT)
    net.op("Concat", boxes, net.op("ReduceMax", scores, axes=[2]), label, name="output0", axis=2)
    return net.save(path, {"output0": (net.cells(), 6)}, metadata=metadata)


def yolov8_reversed(path: Path) -> Path:
    """(B, 4 + K, A) whose scores are turned round by a Slice of step -1, which cannot be followed."""
    net = Net(96)
    boxes, scores = yolov8_head(net, 3)
    scores = net.op("Slice", scores, net.ints(-1), net.ints(-100), net.ints(1), net.ints(-1))
    net.op("Concat", boxes, scores, name="output0", axis=1)
    return net.save(path, {"output0": (7, net.cells())})


def with_nan(model: onnx.ModelProto) -> onnx.ModelProto:
    """Break one weight of the first convolution."""
    weight = next(one for one in model.graph.initializer if len(one.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] = np.nan
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    return model
