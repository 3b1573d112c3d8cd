"""How OpenVINO computes INT8 on this CPU: asked of a convolution, not of the CPU's name."""

from __future__ import annotations

import functools
import logging
import threading
from typing import Any

import numpy as np

from edge.engine.openvino.binding import core, import_openvino

__all__ = ["is_int8_in_float", "why_int8_in_float"]

_log = logging.getLogger(__name__)
_finding_out = threading.Lock()

_CHANNELS, _SIZE, _KERNEL = 64, 8, 3
_HIGHEST_ACTIVATION, _HIGHEST_WEIGHT = 255, 127


def is_int8_in_float() -> bool:
    """Return whether a model that is compiled now is to have its INT8 in float; the log says so once in a process.

    A search compiles hundreds, some side by side, a comparison two: what runs them on this machine is the same for all.
    """
    with _finding_out:
        return _is_int8_in_float()


@functools.cache
def _is_int8_in_float() -> bool:
    why = why_int8_in_float()
    if why is not None:
        _log.warning("int8 is computed in float, at its speed reason=%s", why)
    return why is not None


@functools.cache
def why_int8_in_float() -> str | None:
    """Return why the levels of INT8 are better computed in float here; None: OpenVINO computes INT8, and exactly.

    A convolution of the largest uint8 by the largest int8 is compiled and run (40 ms, once). docs/adr/0006.
    """
    ov = import_openvino()
    compiled = core().compile_model(_convolution(ov), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds = {_word(op, "layerType"): _word(op, "primitiveType") for op in compiled.get_runtime_model().get_ops()}
    if not kinds.get("Convolution", "").lower().endswith("i8"):
        return "OpenVINO has no INT8 convolutions for this CPU"
    (result,) = compiled([np.full((1, _CHANNELS, _SIZE, _SIZE), _HIGHEST_ACTIVATION, np.float32)]).values()
    expected = _CHANNELS * _KERNEL * _KERNEL * _HIGHEST_ACTIVATION * _HIGHEST_WEIGHT
    # x86-64 without VNNI adds products in pairs, in 16 bits, where these do not fit.
    return "INT8 sums saturate here (no VNNI)" if np.abs(result - expected).max() > 0.001 * expected else None


def _convolution(ov: Any) -> Any:
    opset = ov.opset13
    images = opset.parameter([1, _CHANNELS, _SIZE, _SIZE], np.float32)
    low, high = np.float32(0), np.float32(_HIGHEST_ACTIVATION)
    levels = opset.fake_quantize(images, low, high, low, high, _HIGHEST_ACTIVATION + 1)
    stored = opset.constant(np.full((_CHANNELS, _CHANNELS, _KERNEL, _KERNEL), _HIGHEST_WEIGHT, np.int8))
    weights = opset.multiply(opset.convert(stored, "f32"), np.ones((_CHANNELS, 1, 1, 1), np.float32))
    sums = opset.convolution(levels, weights, [1, 1], [0, 0], [0, 0], [1, 1])
    return ov.Model([sums], [images], "int8")


def _word(op: Any, name: str) -> str:
    """Return what the compiled model says of a node: https://docs.openvino.ai, `ov::ExecGraphInfo`."""
    told = op.get_rt_info()
    return str(told[name].astype(str)) if name in told else ""
