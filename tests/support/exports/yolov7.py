"""YOLOv7-tiny as its authors' export.py --grid writes it: opset 12, LeakyReLU, no metadata, only the batch open.

The operators are the authors' (ELAN, SPP, a head with anchors), with an eighth of the channels.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.exports.build import CLASSES, settled
from tests.support.exports.heads import STRIDES
from tests.support.exports.slim import slimmed
from tests.support.exports.torch_like import Writer
from tests.support.models import ANCHORS

OUTPUT, SIZE = "output", 96
_ROWS = 5 + CLASSES
_LOGITS = r"model\.77/m\.[0-2]/Conv$"


def build(path, *, batch=1, is_simplified=True):
    """Write a model to `path`, and return that; `is_simplified`: by --simplify."""
    w = Writer(height=SIZE, width=SIZE, rows=batch, opset=12)
    with w.within("model"):
        levels = _levels(w)
        with w.within("model.77"):
            w.op("Concat", *(_level(w, level, number) for number, level in enumerate(levels)), axis=1, name=OUTPUT)
    model = w.model({OUTPUT: (3 * sum(one.height * one.width for one in levels), _ROWS)}, {})
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = SIZE
    model = _with_calm_boxes(settled(model, _LOGITS, (batch or 1, 3, SIZE, SIZE), mean=-2.3))
    onnx.save(slimmed(model) if is_simplified else model, path)
    return path


def _with_calm_boxes(model):
    """Let boxes be about as large as their anchors, in the middle of their cells."""
    for tensor in model.graph.initializer:
        if ".77.m." in tensor.name:
            value = numpy_helper.to_array(tensor).reshape(3, _ROWS, -1).copy()
            value[:, :4] *= 0.0 if tensor.name.endswith("bias") else 0.1
            tensor.CopyFrom(numpy_helper.from_array(value.reshape(tuple(tensor.dims)), tensor.name))
    return model


def _conv(w, x, out, kernel=1, stride=1):
    with w.within(f"model.{len(w.stored) // 2}"):
        made = w.conv(x, out, kernel, stride=stride, scope="", act=None)
        return w.like(made, w.op("LeakyRelu", made.name, alpha=0.1))


def _elan(w, x, inner, out):
    first, second = _conv(w, x, inner), _conv(w, x, inner)
    third = _conv(w, second, inner, 3)
    return _conv(w, w.join(_conv(w, third, inner, 3), third, second, first), out)


def _levels(w):
    """Backbone and neck: three maps, the finest first."""
    x = _elan(w, _conv(w, _conv(w, w.picture, 4, 3, 2), 8, 3, 2), 4, 8)
    found = []
    for inner in (8, 16, 32):
        x = _elan(w, w.pool(x, 2, stride=2, pad=0), inner, 2 * inner)
        found.append(x)
    fine, middle, coarse = found
    top = _spp(w, coarse)
    second = _elan(w, w.join(_conv(w, middle, 16), w.doubled(_conv(w, top, 16))), 8, 16)
    first = _elan(w, w.join(_conv(w, fine, 8), w.doubled(_conv(w, second, 8))), 4, 8)
    second = _elan(w, w.join(_conv(w, first, 16, 3, 2), second), 8, 16)
    third = _elan(w, w.join(_conv(w, second, 32, 3, 2), top), 16, 32)
    return [_conv(w, one, 2 * one.channels, 3) for one in (first, second, third)]


def _spp(w, x):
    beside, inner = _conv(w, x, 32), _conv(w, x, 32)
    pooled = [w.pool(inner, kernel) for kernel in (5, 9, 13)]
    return _conv(w, w.join(_conv(w, w.join(*pooled[::-1], inner), 32), beside), 32)


def _level(w, x, number):
    with w.within(f"m.{number}"):
        made = w.convolve(x, 3 * _ROWS)
    batch, height, width = w.sizes_of(made.name, 0, 2, 3) if w.is_open else (w.rows, x.height, x.width)
    cells = w.op("Transpose", w.shaped(made.name, batch, 3, _ROWS, height, width), perm=[0, 1, 3, 4, 2])
    centre, extent, scores = w.split(w.op("Sigmoid", cells), 2, 2, CLASSES + 1, axis=4)
    stride, anchors = STRIDES[number], np.reshape(ANCHORS[number], (1, 3, 1, 1, 2)) / 2  # for a small picture
    grid = np.stack(np.meshgrid(np.arange(x.width), np.arange(x.height)), axis=-1)[None, None]
    centre = w.op("Add", w.op("Mul", centre, w.number(2.0 * stride)), w.number(stride * (grid - 0.5)))
    extent = w.op("Mul", w.op("Pow", extent, w.number(2.0)), w.number(4.0 * anchors))
    return w.shaped(w.op("Concat", centre, extent, scores, axis=4), batch, -1, _ROWS)
