"""An INT8 convolution by CUTLASS's Python interface, where it and nvcc are: what a library kernel makes of the peak."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from edge.engine.cuda.binding import import_pycuda
from edge.engine.cuda.gpu import Gpu
from edge.engine.kind import Peak

__all__ = ["conv_peak"]

_NAME = "int8 conv2d NHWC (CUTLASS)"
_LEAST_S = 0.1
_FRAMES, _SIDE, _CHANNELS, _KERNEL = 8, 40, 256, 3
# Types of input, weights, result and sums. CUTLASS 4.2 lists int8 to int32 and then has no operation of it.
_COMBINATIONS = (("s8", "s8", "s32", "s32"), ("u8", "s8", "s32", "s32"), ("s8", "s8", "s8", "s32"))
_DTYPES = {"s8": np.int8, "u8": np.uint8, "s32": np.int32}
_TOLD_CHARACTERS = 120


def conv_peak(gpu: Gpu) -> Peak:
    """Return the rate of the first combination of types that CUTLASS has, and in its detail those that it has not."""
    if shutil.which("nvcc") is None:
        return _absent("CUTLASS compiles its kernels, and nvcc is not here")
    if find_spec("cutlass_cppgen") is None:
        return _absent("CUTLASS is not installed: pip install nvidia-cutlass")
    lacking: list[str] = []
    for combination in _COMBINATIONS:
        words = "{} x {} to {}, sums in {}".format(*combination)
        try:
            tops = _measured(gpu, combination)
        except Exception as error:  # CUTLASS raises nothing more particular for what it does not have
            lacking.append(f"{words}: {str(error).splitlines()[0][:_TOLD_CHARACTERS]}")
            continue
        return Peak(name=_NAME, unit="TOPS", value=round(tops, 3), detail="; ".join([words, *_not_there(lacking)]))
    return _absent("; ".join(_not_there(lacking)))


def _absent(why: str) -> Peak:
    return Peak(name=_NAME, unit="TOPS", value=None, detail=f"not measured: {why}")


def _not_there(lacking: list[str]) -> Iterator[str]:
    for one in lacking:
        yield f"CUTLASS lacks {one}"


def _measured(gpu: Gpu, combination: tuple[str, ...]) -> float:
    import cutlass_cppgen as cutlass

    given, weight, result, sums = (getattr(cutlass.DataType, name) for name in combination)
    plan: Any = cutlass.op.Conv2dFprop(
        element_input=given, element_weight=weight, element_C=result, element_output=result, element_accumulator=sums
    )
    output = np.zeros((_FRAMES, _SIDE, _SIDE, _CHANNELS), _DTYPES[combination[2]])
    operands = (
        np.ones((_FRAMES, _SIDE, _SIDE, _CHANNELS), _DTYPES[combination[0]]),
        np.ones((_CHANNELS, _KERNEL, _KERNEL, _CHANNELS), _DTYPES[combination[1]]),
        np.zeros_like(output),
        output,
    )
    with gpu.current():
        arguments = plan.run(*operands, stride=(1, 1), padding=(1, 1))
        return _rate(plan.operation, arguments)


def _rate(operation: Any, arguments: Any) -> float:
    synchronize, runs = import_pycuda().Context.synchronize, 1
    while True:
        began_s = time.perf_counter()
        for _ in range(runs):
            operation.run(arguments)
        synchronize()
        elapsed_s = time.perf_counter() - began_s
        if elapsed_s >= _LEAST_S:
            return 2 * runs * _FRAMES * _SIDE**2 * _CHANNELS**2 * _KERNEL**2 / elapsed_s / 1e12
        runs *= 2
