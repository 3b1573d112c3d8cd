"""YOLOv5 (6.1), YOLOv7 and YOLO11 as their authors publish them, with weights of zeros: for counting only."""

from pathlib import Path

import numpy as np

from tests.support.models import Net

_CLASSES, _BINS = 80, 16


class _Body:
    """The blocks that both are made of; convolutions have bias and SiLU, as exported."""

    def __init__(self, net: Net) -> None:
        self.net = net

    def plain(self, x: str, into: int, out: int, *, kernel: int = 1) -> str:
        weight = self.net.const(np.zeros((out, into, kernel, kernel)))
        return self.net.op("Conv", x, weight, self.net.const(np.zeros(out)), kernel_shape=[kernel] * 2)

    def conv(self, x: str, into: int, out: int, *, kernel: int = 1, stride: int = 1, pad: int | None = None) -> str:
        weight = self.net.const(np.zeros((out, into, kernel, kernel)))
        pads = [kernel // 2 if pad is None else pad] * 4
        made = self.net.op("Conv", x, weight, self.net.const(np.zeros(out)), strides=[stride] * 2, pads=pads)
        return self.net.silu(made)

    def bottleneck(self, x: str, channels: int, *, first: int, is_residual: bool) -> str:
        inner = self.conv(self.conv(x, channels, channels, kernel=first), channels, channels, kernel=3)
        return self.net.op("Add", x, inner) if is_residual else inner

    def c3(self, x: str, into: int, out: int, *, count: int = 1, is_residual: bool = False, first: int = 1) -> str:
        half = out // 2
        left, right = self.conv(x, into, half), self.conv(x, into, half)
        for _ in range(count):
            left = self.bottleneck(left, half, first=first, is_residual=is_residual)
        return self.conv(self.net.op("Concat", left, right, axis=1), out, out)

    def sppf(self, x: str, channels: int) -> str:
        parts = [self.conv(x, channels, channels // 2)]
        for _ in range(3):
            parts.append(self.net.op("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4))
        return self.conv(self.net.op("Concat", *parts, axis=1), 2 * channels, channels)

    def elan(self, x: str, into: int, width: int, *, out: int) -> str:
        parts = [self.conv(x, into, width), self.conv(x, into, width)]
        for _ in range(2):
            parts.append(self.conv(self.conv(parts[-1], width, width, kernel=3), width, width, kernel=3))
        return self.conv(self.join(*parts), 4 * width, out)

    def wide_elan(self, x: str, into: int, out: int) -> str:
        half = out // 2
        parts = [self.conv(x, into, out), self.conv(x, into, out)]
        for number in range(4):
            parts.append(self.conv(parts[-1], half if number else out, half, kernel=3))
        return self.conv(self.join(*parts), 2 * out + 4 * half, out)

    def smaller(self, x: str, into: int, out: int) -> str:
        pooled = self.conv(self.net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), into, out)
        return self.join(pooled, self.conv(self.conv(x, into, out), out, out, kernel=3, stride=2))

    def sppcspc(self, x: str, into: int, out: int) -> str:
        left = self.conv(self.conv(self.conv(x, into, out), out, out, kernel=3), out, out)
        pools = [self.net.op("MaxPool", left, kernel_shape=[k, k], pads=[k // 2] * 4) for k in (5, 9, 13)]
        left = self.conv(self.conv(self.join(left, *pools), 4 * out, out), out, out, kernel=3)
        return self.conv(self.join(left, self.conv(x, into, out)), 2 * out, out)

    def c3k2(self, x: str, into: int, out: int, *, is_deep: bool, inner: int | None = None, count: int = 1) -> str:
        half = inner or out // 2
        parts = self.net.ops("Split", self.conv(x, into, 2 * half), self.net.ints(half, half), count=2, axis=1)
        for _ in range(count):
            one = (
                self.c3(parts[-1], half, half, count=2, first=3, is_residual=True)
                if is_deep
                else self.narrow(parts[-1], half)
            )
            parts.append(one)
        return self.conv(self.join(*parts), (2 + count) * half, out)

    def narrow(self, x: str, channels: int) -> str:
        half = channels // 2
        inner = self.conv(self.conv(x, channels, half, kernel=3), half, channels, kernel=3)
        return self.net.op("Add", x, inner)

    def c2psa(self, x: str, channels: int, *, side: int, count: int) -> str:
        half = channels // 2
        kept, x = self.net.ops("Split", self.conv(x, channels, channels), self.net.ints(half, half), count=2, axis=1)
        for _ in range(count):
            x = self.net.op("Add", x, self.attention(x, half, side))
            x = self.net.op("Add", x, self.plain(self.conv(x, half, 2 * half), 2 * half, half))
        return self.conv(self.join(kept, x), channels, channels)

    def attention(self, x: str, channels: int, side: int) -> str:
        heads, key, value, cells = channels // 64, 32, 64, side * side
        mixed = self.net.reshape(self.plain(x, channels, 2 * channels), heads, 2 * key + value, cells)
        q, k, v = self.net.ops("Split", mixed, self.net.ints(key, key, value), count=3, axis=2)
        scores = self.net.op("MatMul", self.net.op("Transpose", q, perm=[0, 1, 3, 2]), k)
        weights = self.net.op("Softmax", self.net.op("Mul", scores, self.net.const(key**-0.5)), axis=-1)
        seen = self.net.op("MatMul", v, self.net.op("Transpose", weights, perm=[0, 1, 3, 2]))
        places = self.depthwise(self.net.reshape(v, channels, side, side), channels, is_plain=True)
        return self.plain(self.net.op("Add", self.net.reshape(seen, channels, side, side), places), channels, channels)

    def depthwise(self, x: str, channels: int, *, is_plain: bool = False) -> str:
        weight = self.net.const(np.zeros((channels, 1, 3, 3)))
        made = self.net.op("Conv", x, weight, self.net.const(np.zeros(channels)), pads=[1] * 4, group=channels)
        return made if is_plain else self.net.silu(made)

    def larger(self, x: str) -> str:
        return self.net.op("Resize", x, "", self.net.const([1, 1, 2, 2]), mode="nearest")

    def join(self, *parts: str) -> str:
        return self.net.op("Concat", *parts, axis=1)


def _save_with_bins(body: _Body, levels: list[str], path: Path) -> Path:
    """Distances by their bins, scores by their logits, as YOLO11 ends."""
    net, cells = body.net, body.net.cells()
    both = net.op("Concat", *levels, axis=2)
    distances, logits = net.ops("Split", both, net.ints(4 * _BINS, _CLASSES), count=2, axis=1)
    bins = net.op("Transpose", net.reshape(distances, 4, _BINS, cells), perm=[0, 2, 1, 3])
    weight = net.const(np.arange(_BINS).reshape(1, _BINS, 1, 1))
    boxes = net.reshape(net.op("Conv", net.op("Softmax", bins, axis=1), weight), 4, cells)
    net.op("Concat", boxes, net.op("Sigmoid", logits), name="output0", axis=1)
    return net.save(path, {"output0": (4 + _CLASSES, cells)})


def yolov5(path: Path, *, width: int = 1, size: int = 640) -> Path:
    """YOLOv5 6.1; `width` 1 is n (1.9 M parameters, 4.5 GFLOPs at 640 as published), 2 is s (7.2 M, 16.5)."""
    net = Net(size)
    body = _Body(net)
    c16, c32, c64, c128, c256 = (width * channels for channels in (16, 32, 64, 128, 256))
    x = body.conv(net.image, 3, c16, kernel=6, stride=2, pad=2)
    x = body.c3(body.conv(x, c16, c32, kernel=3, stride=2), c32, c32, is_residual=True)
    p3 = body.c3(body.conv(x, c32, c64, kernel=3, stride=2), c64, c64, count=2, is_residual=True)
    p4 = body.c3(body.conv(p3, c64, c128, kernel=3, stride=2), c128, c128, count=3, is_residual=True)
    x = body.c3(body.conv(p4, c128, c256, kernel=3, stride=2), c256, c256, is_residual=True)
    top = body.conv(body.sppf(x, c256), c256, c128)
    mid = body.conv(body.c3(body.join(body.larger(top), p4), c256, c128), c128, c64)
    n3 = body.c3(body.join(body.larger(mid), p3), c128, c64)
    n4 = body.c3(body.join(body.conv(n3, c64, c64, kernel=3, stride=2), mid), c128, c128)
    n5 = body.c3(body.join(body.conv(n4, c128, c128, kernel=3, stride=2), top), c256, c256)
    heads = [(n3, c64, size // 8), (n4, c128, size // 16), (n5, c256, size // 32)]
    return _save_with_anchors(body, heads, path)


def _save_with_anchors(body: _Body, heads: list[tuple[str, int, int]], path: Path) -> Path:
    """Three boxes a cell, as YOLOv5 and YOLOv7 end."""
    net = body.net
    rows = 5 + _CLASSES
    levels = []
    for feature, channels, side in heads:
        raw = net.reshape(body.plain(feature, channels, 3 * rows), 3, rows, side, side)
        scores = net.op("Sigmoid", net.op("Transpose", raw, perm=[0, 1, 3, 4, 2]))
        levels.append(net.reshape(scores, 3 * side * side, rows))
    net.op("Concat", *levels, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), rows)})


def yolov7(path: Path, *, size: int = 640) -> Path:
    """As it is deployed: 36.9 M parameters, 104.7 GFLOPs at 640 as published."""
    net = Net(size)
    body = _Body(net)
    x = body.conv(body.conv(net.image, 3, 32, kernel=3), 32, 64, kernel=3, stride=2)
    x = body.conv(body.conv(x, 64, 64, kernel=3), 64, 128, kernel=3, stride=2)
    x = body.elan(x, 128, 64, out=256)
    p3 = body.elan(body.smaller(x, 256, 128), 256, 128, out=512)
    p4 = body.elan(body.smaller(p3, 512, 256), 512, 256, out=1024)
    p5 = body.sppcspc(body.elan(body.smaller(p4, 1024, 512), 1024, 256, out=1024), 1024, 512)
    x = body.join(body.larger(body.conv(p5, 512, 256)), body.conv(p4, 1024, 256))
    n4 = body.wide_elan(x, 512, 256)
    x = body.join(body.larger(body.conv(n4, 256, 128)), body.conv(p3, 512, 128))
    n3 = body.wide_elan(x, 256, 128)
    n4 = body.wide_elan(body.join(body.smaller(n3, 128, 128), n4), 512, 256)
    n5 = body.wide_elan(body.join(body.smaller(n4, 256, 256), p5), 1024, 512)
    features = ((n3, 128, 256, size // 8), (n4, 256, 512, size // 16), (n5, 512, 1024, size // 32))
    heads = [(body.conv(one, into, out, kernel=3), out, side) for one, into, out, side in features]
    return _save_with_anchors(body, heads, path)


_SCALES_11 = {"n": (1, 0.25, 1024), "s": (1, 0.5, 1024), "m": (1, 1.0, 512), "l": (2, 1.0, 512), "x": (2, 1.5, 512)}


def yolo11(path: Path, *, scale: str = "n", size: int = 640) -> Path:
    """n, s, m, l, x: 2.6, 9.4, 20.1, 25.3, 56.9 M parameters; 6.5, 21.5, 68.0, 86.9, 194.9 GFLOPs as published."""
    net = Net(size)
    body = _Body(net)
    count, width, most = _SCALES_11[scale]
    is_deep = scale in "mlx"
    c64, c128, c256, c512, c1024 = (int(min(c, most) * width) for c in (64, 128, 256, 512, 1024))
    x = body.conv(body.conv(net.image, 3, c64, kernel=3, stride=2), c64, c128, kernel=3, stride=2)
    x = body.c3k2(x, c128, c256, inner=c256 // 4, count=count, is_deep=is_deep)
    x = body.conv(x, c256, c256, kernel=3, stride=2)
    p3 = body.c3k2(x, c256, c512, inner=c512 // 4, count=count, is_deep=is_deep)
    p4 = body.c3k2(body.conv(p3, c512, c512, kernel=3, stride=2), c512, c512, count=count, is_deep=True)
    x = body.c3k2(body.conv(p4, c512, c1024, kernel=3, stride=2), c1024, c1024, count=count, is_deep=True)
    p5 = body.c2psa(body.sppf(x, c1024), c1024, side=size // 32, count=count)
    n4 = body.c3k2(body.join(body.larger(p5), p4), c1024 + c512, c512, count=count, is_deep=is_deep)
    n3 = body.c3k2(body.join(body.larger(n4), p3), 2 * c512, c256, count=count, is_deep=is_deep)
    x = body.join(body.conv(n3, c256, c256, kernel=3, stride=2), n4)
    n4 = body.c3k2(x, c256 + c512, c512, count=count, is_deep=is_deep)
    x = body.join(body.conv(n4, c512, c512, kernel=3, stride=2), p5)
    n5 = body.c3k2(x, c512 + c1024, c1024, count=count, is_deep=True)
    features = ((n3, c256, size // 8), (n4, c512, size // 16), (n5, c1024, size // 32))
    return _save_with_bins(
        body, [_level11(body, one, channels, side, least=c256) for one, channels, side in features], path
    )


def _level11(body: _Body, x: str, channels: int, side: int, *, least: int) -> str:
    wide, narrow = max(least // 4, 4 * _BINS), max(least, _CLASSES)
    boxes = body.plain(body.conv(body.conv(x, channels, wide, kernel=3), wide, wide, kernel=3), wide, 4 * _BINS)
    inner = body.conv(body.depthwise(x, channels), channels, narrow)
    scores = body.plain(body.conv(body.depthwise(inner, narrow), narrow, narrow), narrow, _CLASSES)
    return body.net.reshape(body.join(boxes, scores), 4 * _BINS + _CLASSES, side * side)
