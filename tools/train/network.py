"""The demo model: a small anchor-free detector of the YOLOv8 pattern (strides 8, 16, 32; boxes as distributions).

Source: the layout of the head's output follows what Ultralytics exports for YOLOv8 detection models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["REG_MAX", "STRIDES", "Anchors", "Detector", "Exported", "anchors_for", "boxes_from_raw"]

REG_MAX = 16
"""Bins of one side's distance, in strides: a box reaches at most 15 strides from its anchor."""

STRIDES = (8, 16, 32)
_WIDTHS = (16, 16, 32, 64, 96)
_HEAD_WIDTH = 32


class Conv(nn.Module):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, inputs, H, W)` to `(B, outputs, H / stride, W / stride)`."""
        activated: Tensor = self.act(self.bn(self.conv(x)))
        return activated


class Bottleneck(nn.Module):
    """Two 3x3 convolutions, with a bypass when asked for."""

    def __init__(self, width: int, has_bypass: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width, 3), Conv(width, width, 3)
        self.has_bypass = has_bypass

    def forward(self, x: Tensor) -> Tensor:
        """Keep the shape."""
        inner: Tensor = self.cv2(self.cv1(x))
        return x + inner if self.has_bypass else inner


class C2f(nn.Module):
    """Half of the channels goes through bottlenecks, every intermediate result is kept and mixed."""

    def __init__(self, inputs: int, outputs: int, *, has_bypass: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, 2 * half), Conv(3 * half, outputs)
        self.inner = Bottleneck(half, has_bypass)
        self.half_width = half

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, inputs, H, W)` to `(B, outputs, H, W)`."""
        kept, worked = torch.split(self.cv1(x), [self.half_width, self.half_width], 1)
        mixed: Tensor = self.cv2(torch.cat((kept, worked, self.inner(worked)), 1))
        return mixed


class Pool(nn.Module):
    """Three chained 5x5 maxima, so that the coarsest level sees the whole picture (SPPF)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width // 2), Conv(width * 2, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Keep the shape."""
        levels = [self.cv1(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        mixed: Tensor = self.cv2(torch.cat(levels, 1))
        return mixed


class Head(nn.Module):
    """For one stride: four distances as distributions, and one logit per class."""

    def __init__(self, width: int, class_count: int, stride: int) -> None:
        super().__init__()
        mid = _HEAD_WIDTH
        self.box = nn.Sequential(Conv(width, mid, 3), Conv(mid, mid, 3), nn.Conv2d(mid, 4 * REG_MAX, 1))
        self.score = nn.Sequential(Conv(width, mid, 3), Conv(mid, mid, 3), nn.Conv2d(mid, class_count, 1))
        nn.init.constant_(_bias(self.box[-1]), 1.0)
        nn.init.constant_(_bias(self.score[-1]), math.log(8 / class_count / (320 / stride) ** 2))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, width, H, W)` to `(B, 4 * REG_MAX + K, H, W)`."""
        return torch.cat((self.box(x), self.score(x)), 1)


def _bias(layer: nn.Module) -> Tensor:
    bias = layer.bias
    assert isinstance(bias, Tensor)
    return bias


class Detector(nn.Module):
    """Backbone, two-way feature pyramid and heads; `class_count` is K."""

    def __init__(self, class_count: int) -> None:
        super().__init__()
        a, b, c, d, e = _WIDTHS
        self.class_count = class_count
        self.stem = nn.Sequential(Conv(3, a, 3, 2), Conv(a, b, 3, 2), C2f(b, b, has_bypass=True))
        self.down8 = nn.Sequential(Conv(b, c, 3, 2), C2f(c, c, has_bypass=True))
        self.down16 = nn.Sequential(Conv(c, d, 3, 2), C2f(d, d, has_bypass=True))
        self.down32 = nn.Sequential(Conv(d, e, 3, 2), C2f(e, e, has_bypass=True), Pool(e))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.top16, self.top8 = C2f(d + e, d, has_bypass=False), C2f(c + d, c, has_bypass=False)
        self.back16, self.back32 = Conv(c, c, 3, 2), Conv(d, d, 3, 2)
        self.out16, self.out32 = C2f(c + d, d, has_bypass=False), C2f(d + e, e, has_bypass=False)
        self.heads = nn.ModuleList(
            Head(width, class_count, stride) for width, stride in zip((c, d, e), STRIDES, strict=True)
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return one raw map `(B, 4 * REG_MAX + K, H / stride, W / stride)` per stride.

        `images`: float32 `(B, 3, H, W)` RGB, 0 to 1; H and W are multiples of 32.
        """
        p8 = self.down8(self.stem(images))
        p16 = self.down16(p8)
        p32 = self.down32(p16)
        t16 = self.top16(torch.cat((self.up(p32), p16), 1))
        n8 = self.top8(torch.cat((self.up(t16), p8), 1))
        n16 = self.out16(torch.cat((self.back16(n8), t16), 1))
        n32 = self.out32(torch.cat((self.back32(n16), p32), 1))
        return [head(level) for head, level in zip(self.heads, (n8, n16, n32), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """Where predictions sit. `xy` float32 `(A, 2)` in strides of their level, `stride` float32 `(A, 1)` pixels."""

    xy: Tensor
    stride: Tensor


def anchors_for(width: int, height: int) -> Anchors:
    """Return the cell centres of all levels for a canvas of this size in pixels, fine level first, rows first."""
    centres, strides = [], []
    for stride in STRIDES:
        ys, xs = torch.meshgrid(
            torch.arange(height // stride) + 0.5, torch.arange(width // stride) + 0.5, indexing="ij"
        )
        centres.append(torch.stack((xs, ys), -1).reshape(-1, 2))
        strides.append(torch.full((xs.numel(), 1), float(stride)))
    return Anchors(xy=torch.cat(centres), stride=torch.cat(strides))


def boxes_from_raw(raw: Tensor, anchors: Anchors) -> Tensor:
    """Return xyxy boxes in strides, `(B, A, 4)`: the mean of each distribution in the logits `(B, A, 4 * REG_MAX)`."""
    bins = torch.arange(REG_MAX, dtype=raw.dtype)
    sides = raw.reshape(*raw.shape[:-1], 4, REG_MAX).softmax(-1) @ bins
    return torch.cat((anchors.xy - sides[..., :2], anchors.xy + sides[..., 2:]), -1)


class Exported(nn.Module):
    """The trained detector, in evaluation mode, with its output decoded: the graph that is written as ONNX.

    `side`: width and height of the canvas in pixels.
    """

    anchor_xy: Tensor
    stride: Tensor

    def __init__(self, detector: Detector, side: int) -> None:
        super().__init__()
        self.detector = detector
        anchors = anchors_for(side, side)
        self.output_shape = (4 + detector.class_count, len(anchors.xy))
        self.register_buffer("anchor_xy", anchors.xy.T[None].contiguous())
        self.register_buffer("stride", anchors.stride.T[None].contiguous())
        self.dfl = nn.Conv2d(REG_MAX, 1, 1, bias=False)
        self.dfl.weight.data = torch.arange(REG_MAX, dtype=torch.float32).view(1, REG_MAX, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return `(B, 4 + K, A)`: cxcywh in pixels of the canvas, then scores 0 to 1."""
        channels = 4 * REG_MAX + self.detector.class_count
        maps = [level.view(-1, channels, level.shape[2] * level.shape[3]) for level in self.detector(images)]
        raw, logits = torch.split(torch.cat(maps, 2), [4 * REG_MAX, self.detector.class_count], 1)
        count = raw.shape[2]
        sides = self.dfl(raw.view(-1, 4, REG_MAX, count).transpose(2, 1).softmax(1)).view(-1, 4, count)
        left_top, right_bottom = torch.split(sides, [2, 2], 1)
        low, high = self.anchor_xy - left_top, self.anchor_xy + right_bottom
        boxes = torch.cat(((low + high) / 2, high - low), 1) * self.stride
        return torch.cat((boxes, logits.sigmoid()), 1)
