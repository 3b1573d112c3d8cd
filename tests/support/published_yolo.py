"""YOLOv8n and YOLOv5 (6.1) as their authors publish their architecture, with weights of zeros: for counting only."""

from __future__ import annotations

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

    def c2f(self, x: str, into: int, out: int, *, count: int = 1, is_residual: bool = False) -> str:
        half = out // 2
        parts = self.net.ops("Split", self.conv(x, into, out), self.net.ints(half, half), count=2, axis=1)
        for _ in range(count):
            parts.append(self.bottleneck(parts[-1], half, first=3, is_residual=is_residual))
        return self.conv(self.net.op("Concat", *parts, axis=1), (2 + count) * half, out)

    def c3(self, x: str, into: int, out: int, *, count: int = 1, is_residual: bool = False) -> str:
        half = out // 2
        left, right = self.conv(x, into, half), self.conv(x, into, half)
        for _ in range(count):
            left = self.bottleneck(left, half, first=1, is_residual=is_residual)
        return self.conv(self.net.op("Concat", left, right, axis=1), out, out)

    def sppf(self, x: str, channels: int) -> str:
        parts = [self.conv(x, channels, channels // 2)]
        for _ in range(3):
            parts.append(self.net.op("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4))
        return self.conv(self.net.op("Concat", *parts, axis=1), 2 * channels, channels)

    def larger(self, x: str) -> str:
        return self.net.op("Resize", x, "", self.net.const([1, 1, 2, 2]), mode="nearest")

    def join(self, *parts: str) -> str:
        return self.net.op("Concat", *parts, axis=1)


def yolov8n(path: Path) -> Path:
    """3.2 M parameters, 8.7 GFLOPs at 640 as published."""
    net = Net(640)
    body = _Body(net)
    x = body.conv(body.conv(net.image, 3, 16, kernel=3, stride=2), 16, 32, kernel=3, stride=2)
    x = body.c2f(x, 32, 32, is_residual=True)
    p3 = body.c2f(body.conv(x, 32, 64, kernel=3, stride=2), 64, 64, count=2, is_residual=True)
    p4 = body.c2f(body.conv(p3, 64, 128, kernel=3, stride=2), 128, 128, count=2, is_residual=True)
    x = body.c2f(body.conv(p4, 128, 256, kernel=3, stride=2), 256, 256, is_residual=True)
    p5 = body.sppf(x, 256)
    n4 = body.c2f(body.join(body.larger(p5), p4), 384, 128)
    n3 = body.c2f(body.join(body.larger(n4), p3), 192, 64)
    n4 = body.c2f(body.join(body.conv(n3, 64, 64, kernel=3, stride=2), n4), 192, 128)
    n5 = body.c2f(body.join(body.conv(n4, 128, 128, kernel=3, stride=2), p5), 384, 256)
    levels = [_level8(body, x, channels, side) for x, channels, side in ((n3, 64, 80), (n4, 128, 40), (n5, 256, 20))]
    both = net.op("Concat", *levels, axis=2)
    distances, logits = net.ops("Split", both, net.ints(4 * _BINS, _CLASSES), count=2, axis=1)
    bins = net.op("Transpose", net.reshape(distances, 4, _BINS, 8400), perm=[0, 2, 1, 3])
    weight = net.const(np.arange(_BINS).reshape(1, _BINS, 1, 1))
    boxes = net.reshape(net.op("Conv", net.op("Softmax", bins, axis=1), weight), 4, 8400)
    net.op("Concat", boxes, net.op("Sigmoid", logits), name="output0", axis=1)
    return net.save(path, {"output0": (84, 8400)})


def _level8(body: _Body, x: str, channels: int, side: int) -> str:
    parts = []
    for width, out in ((64, 4 * _BINS), (80, _CLASSES)):
        inner = body.conv(body.conv(x, channels, width, kernel=3), width, width, kernel=3)
        parts.append(body.plain(inner, width, out))
    return body.net.reshape(body.join(*parts), 4 * _BINS + _CLASSES, side * side)


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
    rows = 5 + _CLASSES
    levels = []
    for feature, channels, side in ((n3, c64, size // 8), (n4, c128, size // 16), (n5, c256, size // 32)):
        raw = net.reshape(body.plain(feature, channels, 3 * rows), 3, rows, side, side)
        scores = net.op("Sigmoid", net.op("Transpose", raw, perm=[0, 1, 3, 4, 2]))
        levels.append(net.reshape(scores, 3 * side * side, rows))
    net.op("Concat", *levels, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), rows)})
