"""Measures the peaks of a CPU: an INT8 convolution by OpenVINO, and copying in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from edge.engine.cores import available_cores
from edge.engine.kind import Peak
from edge.engine.openvino.binding import core, import_openvino, why_int8_in_float

__all__ = ["cpu_peaks"]

_LEAST_S, _LEAST_RUNS = 0.3, 5
# Convolutions as large detectors have them: they compute enough for each byte not to wait for memory.
_CHANNELS, _SIDE, _KERNEL = 256, 40, 3
_COPY_BYTES = 256 << 20  # more than caches hold


def cpu_peaks() -> Iterator[Peak]:
    """Yield the peaks of the CPU, on all cores that this process may use.
    Raises `MissingDependencyError` if openvino is not installed.
    """
    yield _int8()
    yield _copy()


def _int8() -> Peak:
    name, cores = "int8 convolution", available_cores()
    if (why := why_int8_in_float()) is not None:
        return Peak(name=name, unit="TOPS", value=None, detail=f"not measured: {why}")
    ov = import_openvino()
    opset = ov.opset13
    images = opset.parameter([cores, _CHANNELS, _SIDE, _SIDE], np.float32)
    made = opset.fake_quantize(images, *_levels(0, 255), 256)
    for _ in range(2):  # the second takes the levels of the first, and its time is most of the whole
        made = opset.fake_quantize(_convolution(opset, made), *_levels(0, 255), 256)
    config = {"INFERENCE_NUM_THREADS": str(cores), "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core().compile_model(ov.Model([made], [images], "int8"), "CPU", config)
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(np.zeros((cores, _CHANNELS, _SIDE, _SIDE), np.float32)))
    elapsed_s = _fastest_s(request.infer)
    operations = 2 * 2 * cores * _CHANNELS * _CHANNELS * _KERNEL**2 * _SIDE**2
    return Peak(
        name=name,
        unit="TOPS",
        value=round(operations / elapsed_s / 1e12, 3),
        detail=f"{cores} cores: two of {_CHANNELS} channels, {_KERNEL} x {_KERNEL} at {_SIDE} x {_SIDE}, uint8 by int8 "
        "to int32, laid out as OpenVINO likes it, with what turns float into levels",
    )


def _copy() -> Peak:
    cores = available_cores()
    source, target = np.ones(_COPY_BYTES, np.uint8), np.zeros(_COPY_BYTES, np.uint8)
    parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
    with ThreadPoolExecutor(cores, thread_name_prefix="copy") as pool:
        # An elementwise operation of OpenVINO reached a fifth of it.
        elapsed_s = _fastest_s(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return Peak(
        name="memory copy",
        unit="GB/s",
        value=round(2 * _COPY_BYTES / elapsed_s / 1e9, 2),
        detail=f"read and written, {_COPY_BYTES >> 20} MiB by {cores} threads",
    )


def _convolution(opset: Any, levels: Any) -> Any:
    stored = opset.constant(np.ones((_CHANNELS, _CHANNELS, _KERNEL, _KERNEL), np.int8))
    scales = np.full((_CHANNELS, 1, 1, 1), 1 / (_CHANNELS * _KERNEL**2), np.float32)
    weights = opset.multiply(opset.convert(stored, "f32"), scales)
    return opset.convolution(levels, weights, [1, 1], [1, 1], [1, 1], [1, 1])


def _levels(low: float, high: float) -> tuple[Any, ...]:
    return (np.float32(low), np.float32(high)) * 2


def _fastest_s(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs; the first, which is not counted, touches the memory."""
    run()
    times_s: list[float] = []
    while len(times_s) < _LEAST_RUNS or sum(times_s) < _LEAST_S:
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return min(times_s)
