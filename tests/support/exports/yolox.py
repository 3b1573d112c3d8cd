"""YOLOX as Megvii's tools/export_onnx.py writes it: opset 11, simplified, only the batch open, no metadata.

The operators are the authors' (CSPDarknet with Focus, PAFPN, decoupled head), with a sixteenth of the channels.
"""

import numpy as np
import onnx

from tests.support.exports import blocks
from tests.support.exports.build import CLASSES, settled
from tests.support.exports.heads import STRIDES
from tests.support.exports.slim import slimmed
from tests.support.exports.torch_like import Map, Writer

OUTPUT, SIZE = "output", 96
_ROWS = 5 + CLASSES
_LOGITS = r"(cls|obj)_preds\.[0-2]/Conv$"
_TO_THE_END = 2**63 - 1


def build(path, *, batch=1, is_decoded=False):
    """Write a model to `path`, and return that; `is_decoded`: by --decode_in_inference."""
    w = Writer(height=SIZE, width=SIZE, rows=batch, opset=11)
    with w.within("backbone"):
        levels = _levels(w)
    with w.within("head"):
        _head(w, levels, is_decoded=is_decoded)
    cells = sum(one.height * one.width for one in levels)
    model = w.model({OUTPUT: (cells, _ROWS)}, {})
    for place, side in zip((2, 3), (SIZE, SIZE), strict=True):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_value = side
    onnx.save(slimmed(settled(model, _LOGITS, (batch or 1, 3, SIZE, SIZE), scale=255.0, mean=-1.7)), path)
    return path


def _levels(w):
    """Backbone and neck: three maps, the finest first."""
    with w.within("backbone"):
        with w.within("stem"):
            x = _focus(w, w.picture, 4)
        found = []
        for number, (channels, count) in enumerate(((8, 1), (16, 3), (32, 3), (64, 1)), 2):
            with w.within(f"dark{number}", f"dark{number}.0"):
                x = w.conv(x, channels, 3, stride=2, scope="")
            if channels == 64:
                with w.within("dark5", "dark5.1"):
                    x = _spp(w, x)
            with w.within(f"dark{number}", "csp"):
                x = blocks.c3(w, x, channels, count=count, is_residual=channels < 64)
            found.append(x)
    return _neck(w, *found[1:])


def _focus(w, x, out):
    """Every second pixel of every second line, four times, side by side."""
    parts = []
    for line, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        name = x.name
        for axis, start in ((2, line), (3, column)):
            name = w.op("Slice", name, *(w.const([one]) for one in (start, _TO_THE_END, axis, 2)))
        parts.append(Map(name, 3, x.height // 2, x.width // 2))
    return w.conv(w.join(*parts), out, 3, scope="conv", gain=1.7 / 255)  # pixels go from 0 to 255


def _spp(w, x):
    inner = w.conv(x, x.channels // 2, scope="conv1")
    parts = [inner]
    for number, kernel in enumerate((5, 9, 13)):
        with w.within(f"m.{number}"):
            parts.append(w.pool(inner, kernel))
    return w.conv(w.join(*parts), x.channels, scope="conv2")


def _neck(w, fine, middle, coarse):
    def csp(scope, out, *parts):
        with w.within(scope):
            return blocks.c3(w, w.join(*parts), out, is_residual=False)

    top = w.conv(coarse, 32, scope="lateral_conv0")
    inner = w.conv(csp("C3_p4", 32, w.doubled(top), middle), 16, scope="reduce_conv1")
    first = csp("C3_p3", 16, w.doubled(inner), fine)
    second = csp("C3_n3", 32, w.conv(first, 16, 3, stride=2, scope="bu_conv2"), inner)
    return first, second, csp("C3_n4", 64, w.conv(second, 32, 3, stride=2, scope="bu_conv1"), top)


def _head(w, levels, *, is_decoded):
    parts = [_flat(w, _level(w, level, number)) for number, level in enumerate(levels)]
    joined = w.op("Concat", *parts, axis=2)
    if not is_decoded:
        w.op("Transpose", joined, perm=[0, 2, 1], name=OUTPUT)
        return
    rows = w.op("Transpose", joined, perm=[0, 2, 1])
    grids = [np.stack(np.meshgrid(np.arange(x.width), np.arange(x.height)), -1).reshape(-1, 2) for x in levels]
    strides = [np.full((x.height * x.width, 1), stride) for x, stride in zip(levels, STRIDES, strict=True)]
    grid, stride = (w.number(np.concatenate(one)[None]) for one in (grids, strides))
    centre, extent, scores = (
        w.op("Slice", rows, *(w.const([one]) for one in (start, end, 2, 1)))
        for start, end in ((0, 2), (2, 4), (4, _TO_THE_END))
    )
    centre = w.op("Mul", w.op("Add", centre, grid), stride)
    w.op("Concat", centre, w.op("Mul", w.op("Exp", extent), stride), scores, axis=-1, name=OUTPUT)


def _level(w, x, number):
    x = w.conv(x, 16, scope=f"stems.{number}")
    kinds, boxes = x, x
    for step in range(2):
        kinds = w.conv(kinds, 16, 3, scope=f"cls_convs.{number}/cls_convs.{number}.{step}")
    with w.within(f"cls_preds.{number}"):
        kinds = w.convolve(kinds, CLASSES)
    for step in range(2):
        boxes = w.conv(boxes, 16, 3, scope=f"reg_convs.{number}/reg_convs.{number}.{step}")
    with w.within(f"reg_preds.{number}"):
        box = w.convolve(boxes, 4, gain=0.05, start=0.5)  # boxes in their cells
    with w.within(f"obj_preds.{number}"):
        sure = w.convolve(boxes, 1)
    sure, kinds = (Map(w.op("Sigmoid", one.name), one.channels, x.height, x.width) for one in (sure, kinds))
    return w.join(box, sure, kinds)


def _flat(w, x):
    """What `flatten(start_dim=2)` is traced to: the first two sizes are asked for where the batch is open."""
    if not w.is_open:
        return w.reshape(x.name, w.const([w.rows, x.channels, -1]))
    front = w.op("Slice", w.op("Shape", x.name), w.const([0]), w.const([2]), w.const([0]))
    return w.reshape(x.name, w.op("Concat", front, w.const([-1]), axis=0))
