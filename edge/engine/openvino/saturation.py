"""Whether OpenVINO's INT8 sums are right on this CPU: asked of a convolution, not of the CPU's name."""

from __future__ import annotations

import functools

import numpy as np

from edge.engine.openvino.binding import import_openvino

__all__ = ["sums_saturate"]

_CHANNELS, _SIZE, _KERNEL = 64, 8, 3
_HIGHEST_ACTIVATION, _HIGHEST_WEIGHT = 255, 127


@functools.cache
def sums_saturate() -> bool:
    """Return whether a convolution of the largest uint8 by the largest int8 gives too little (takes 40 ms, once).

    x86-64 without VNNI adds products in pairs, in 16 bits, where these do not fit.
    """
    ov = import_openvino()
    opset = ov.opset13
    images = opset.parameter([1, _CHANNELS, _SIZE, _SIZE], np.float32)
    low, high = np.float32(0), np.float32(_HIGHEST_ACTIVATION)
    levels = opset.fake_quantize(images, low, high, low, high, _HIGHEST_ACTIVATION + 1)
    stored = opset.constant(np.full((_CHANNELS, _CHANNELS, _KERNEL, _KERNEL), _HIGHEST_WEIGHT, np.int8))
    weights = opset.multiply(opset.convert(stored, "f32"), np.ones((_CHANNELS, 1, 1, 1), np.float32))
    sums = opset.convolution(levels, weights, [1, 1], [0, 0], [0, 0], [1, 1])
    model = ov.Model([sums], [images], "saturation")
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    (result,) = compiled([np.full((1, _CHANNELS, _SIZE, _SIZE), _HIGHEST_ACTIVATION, np.float32)]).values()
    expected = _CHANNELS * _KERNEL * _KERNEL * _HIGHEST_ACTIVATION * _HIGHEST_WEIGHT
    return bool(np.abs(result - expected).max() > 0.001 * expected)
