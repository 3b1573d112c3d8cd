"""Small detectors: one of three convolutions, which a search is done with in a second, and ones with attention."""

from pathlib import Path

import cv2
import numpy as np

from tests.support import models
from tests.support.models import CHANNELS, STRIDES, Net, yolov8_head, yolov10_rows
from tests.support.onnxruntime_engine import OnnxRuntimeEngine

SIZE = 96
CLASSES = 2


class FewLayers(Net):
    """Three levels of one convolution each: a search takes a second."""

    widest = 1.0  # how much larger one channel of each feature is than the others

    def levels(self):
        x, features = self.image, []
        for channels, stride in zip((3, CHANNELS, CHANNELS), (8, 2, 2), strict=True):
            x = self.silu(self.conv(x, channels, CHANNELS, stride=stride))
            features.append(x)
        return features

    def conv(self, x, into, out, *, kernel=1, stride=1, bias=0.0):
        if stride > 1:
            kernel, weight = stride, self.random.normal(0, 1 / stride, (out, into, stride, stride))
            weight[0] *= self.widest
        else:
            kernel = 1 if self.widest == 1 else 3  # so much work that it cannot stay in float
            weight = self.random.normal(0, 1.5 / np.sqrt(into) / kernel, (out, into, kernel, kernel))
        if x != self.image:
            weight[:, 0] /= self.widest
        return self.op(
            "Conv", x, self.const(weight), self.const(np.broadcast_to(bias, out)),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2 if stride == 1 else 0] * 4,
        )  # fmt: skip


def few_layers(path, *, widest=1.0):
    net = FewLayers(SIZE, batch=1, seed=2)
    net.widest = widest
    assert [SIZE // stride for stride in STRIDES] == net.sides()
    parts = [models.yolov5_level(net, feature, i, CLASSES) for i, feature in enumerate(net.levels())]
    net.op("Concat", *parts, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), 5 + CLASSES)})


def write_labels(folder, spec, images):
    """Label each image with what the float model finds in ONNX Runtime with a score of 0.3 and more."""
    folder.mkdir()
    engine = OnnxRuntimeEngine(spec, max_batch=1)
    for path in images:
        canvas = np.full((SIZE, SIZE, 3), 114, np.uint8)
        canvas[12:84] = cv2.resize(cv2.imread(str(path)), (SIZE, 72))[..., ::-1]
        engine.canvases[0][0] = canvas
        engine.start(0, 1)
        (folder / f"{path.stem}.txt").write_text(
            "".join(dict.fromkeys(_lines(engine.wait(0)[0])))
        )  # cut at an edge, two may be one


def _lines(rows):
    scores = rows[:, 4:5] * rows[:, 5:]
    for row in np.argsort(-scores.max(axis=1))[:6]:
        (x, y, width, height), class_id = rows[row, :4], scores[row].argmax()
        left, right = np.clip([x - width / 2, x + width / 2], 0, SIZE) / SIZE
        top, bottom = (np.clip([y - height / 2, y + height / 2], 12, 84) - 12) / 72
        if right - left > 0.05 and bottom - top > 0.05:
            box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
            yield f"{class_id} {' '.join(f'{value:.6f}' for value in box)}\n"


KINDS = ("position", "area", "ranked")
ATTENTION_SIZE, ATTENTION_CLASSES = 128, 3
_WIDTH, _KEY, _AREAS = 128, 32, 4


class _Net(Net):
    """`kind` says which attention the two coarser levels go through."""

    def __init__(self, kind: str, *, batch: int | None) -> None:
        super().__init__(ATTENTION_SIZE, batch=batch)
        self._kind = kind

    def levels(self) -> list[str]:
        fine, middle, coarse = super().levels()
        if self._kind == "area":
            return [fine, self._around(middle, areas=_AREAS), self._around(coarse, areas=1)]
        return [fine, middle, self._around(coarse)]

    def _around(self, x: str, *, areas: int | None = None) -> str:
        wide = self.silu(self.conv(x, CHANNELS, _WIDTH))
        seen = _by_position(self, wide) if areas is None else _by_area(self, wide, areas)
        wide = self.op("Add", wide, seen)
        inner = self.silu(self.conv(wide, _WIDTH, 2 * _WIDTH))
        wide = self.op("Add", wide, self.conv(inner, 2 * _WIDTH, _WIDTH))
        return self.silu(self.conv(wide, _WIDTH, CHANNELS))

    def sizes(self, x: str, *, known: tuple[int, ...]) -> list[str]:
        """Return the sizes of `x` as tensors: constants where the batch is fixed."""
        if self.batch is not None:
            return [self.const(size, np.int64) for size in known]
        return [self.op("Gather", self.op("Shape", x), self.const(i, np.int64), axis=0) for i in range(len(known))]

    def whole(self, kind: str, left: str, right: str | int) -> str:
        return self.op(kind, left, self.const(right, np.int64) if isinstance(right, int) else right)

    def view(self, x: str, *sizes: str | int) -> str:
        parts = [self.const(size, np.int64) if isinstance(size, int) else size for size in sizes]
        return self.op("Reshape", x, self.op("Concat", *(self.op("Unsqueeze", p, self.ints(0)) for p in parts), axis=0))


def _attend(net: _Net, q: str, k: str, v: str) -> str:
    """Return (B, heads, value, cells) of queries, keys and values (B, heads, channels, cells)."""
    scores = net.op("MatMul", net.op("Transpose", q, perm=[0, 1, 3, 2]), k)
    weights = net.op("Softmax", net.op("Mul", scores, net.const(_KEY**-0.5)), axis=-1)
    return net.op("MatMul", v, net.op("Transpose", weights, perm=[0, 1, 3, 2]))


def _by_position(net: _Net, x: str) -> str:
    side, value = ATTENTION_SIZE // 32, 2 * _KEY
    rows, _, height, width = net.sizes(x, known=(net.batch or 0, _WIDTH, side, side))
    mixed = net.conv(x, _WIDTH, 2 * _WIDTH)
    parts = net.view(mixed, rows, _WIDTH // value, 2 * _KEY + value, net.whole("Mul", height, width))
    q, k, v = net.ops("Split", parts, net.ints(_KEY, _KEY, value), count=3, axis=2)
    seen = net.view(_attend(net, q, k, v), rows, _WIDTH, height, width)
    places = net.conv(net.view(v, rows, _WIDTH, height, width), _WIDTH, _WIDTH, kernel=3, group=_WIDTH)
    return net.conv(net.op("Add", seen, places), _WIDTH, _WIDTH)


def _by_area(net: _Net, x: str, areas: int) -> str:
    """Areas are folded into the batch: what is inside has `areas` rows for each image."""
    side, heads = ATTENTION_SIZE // (16 if areas > 1 else 32), _WIDTH // _KEY
    rows, _, height, width = net.sizes(x, known=(net.batch or 0, _WIDTH, side, side))
    cells = net.whole("Mul", height, width)
    mixed = net.op("Transpose", net.view(net.conv(x, _WIDTH, 3 * _WIDTH), rows, 3 * _WIDTH, cells), perm=[0, 2, 1])
    inner_rows, inner_cells = rows, cells
    if areas > 1:
        inner_rows, inner_cells = net.whole("Mul", rows, areas), net.whole("Div", cells, areas)
        mixed = net.view(mixed, inner_rows, inner_cells, 3 * _WIDTH)
    parts = net.op("Transpose", net.view(mixed, inner_rows, inner_cells, heads, 3 * _KEY), perm=[0, 2, 3, 1])
    q, k, v = net.ops("Split", parts, net.ints(_KEY, _KEY, _KEY), count=3, axis=2)

    def unfolded(one: str) -> str:
        one = net.op("Transpose", one, perm=[0, 3, 1, 2])
        if areas > 1:
            one = net.view(one, rows, cells, _WIDTH)
        return net.op("Transpose", net.view(one, rows, height, width, _WIDTH), perm=[0, 3, 1, 2])

    seen, values = unfolded(_attend(net, q, k, v)), unfolded(v)
    places = net.conv(values, _WIDTH, _WIDTH, kernel=7, group=_WIDTH)
    return net.conv(net.op("Add", seen, places), _WIDTH, _WIDTH)


def attention(path: Path, kind: str, *, batch: int | None = None) -> Path:
    net = _Net(kind, batch=batch)
    boxes, scores = yolov8_head(net, ATTENTION_CLASSES, corners=kind == "ranked")
    if kind == "ranked":
        return net.save(path, {yolov10_rows(net, boxes, scores, classes=ATTENTION_CLASSES, top=20): (20, 6)})
    net.op("Concat", boxes, scores, name="output0", axis=1)
    return net.save(path, {"output0": (4 + ATTENTION_CLASSES, net.cells())})
