"""What this CPU reaches at most on some of its cores: products of matrices by OpenVINO, bandwidths by numpy."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.engine.cores import available_cores
from edge.engine.openvino.bandwidth import Bandwidths
from edge.engine.openvino.binding import core, import_openvino, name_and_version
from edge.engine.openvino.int8 import why_int8_in_float
from edge.engine.openvino.node_times import switches_so_far
from edge.roofline.measured import MeasuredMachine, Rate, WorkingSet
from edge.types import Precision

__all__ = ["CpuRoofMeter", "processor_name"]

# Convolutions in a row, so that what stands around them does not count; few, so that a run is over in a millisecond or
# two: on a busy machine a longer one never has the processor for itself.
_CHAIN = {Precision.FP32: 2, Precision.INT8: 6}
_LEAST_S, _LEAST_RUNS = 0.1, 4
_LEAST_ALONE, _MOST_S = 3, 0.6  # runs during which nobody else had a core, and how long they are waited for
_LEVELS = (np.float32(0), np.float32(255)) * 2


@dataclass(frozen=True, slots=True)
class _Shape:
    """Of a convolution: a product of matrices that caches hold. Which of them is fastest depends on the CPU."""

    channels: int
    side: int
    kernel: int

    @property
    def operations(self) -> int:
        """Of one convolution."""
        return 2 * self.channels**2 * self.kernel**2 * self.side**2


_SHAPES = (_Shape(64, 20, 3), _Shape(64, 40, 3), _Shape(128, 20, 3), _Shape(256, 10, 3), _Shape(128, 40, 1))


class CpuRoofMeter:
    """`edge.engine.measuring.RoofMeter`: compiles once, measures in rounds.

    Raises:
        MissingDependencyError: if openvino is not installed.
    """

    def __init__(self, *, cores: int) -> None:
        self._cores = cores
        why = why_int8_in_float()
        self._why_no = {} if why is None else {Precision.INT8: why}
        kinds = {Precision.FP32: _float_chain, Precision.INT8: _int8_chain}
        self._runs: dict[Precision, list[tuple[int, Callable[[], object]]]] = {
            kind: [(_CHAIN[kind] * shape.operations, _compiled(chain(shape), shape, cores)) for shape in _SHAPES]
            for kind, chain in kinds.items()
            if kind not in self._why_no
        }
        self._bandwidths = Bandwidths(cores)

    def measure(self) -> MeasuredMachine:
        """Return what one more round reached."""
        fastest = {
            kind: max((_fastest(run, operations) for operations, run in runs), key=lambda one: one.rate)
            for kind, runs in self._runs.items()
        }
        sets = tuple(
            WorkingSet(size_bytes=size, rate=Rate(rounds=(rate,))) for size, rate in self._bandwidths.measure()
        )
        return MeasuredMachine(
            processor=processor_name(),
            cores=self._cores,
            all_cores=available_cores(),
            engine=name_and_version(),
            peaks={kind: Rate(rounds=(one.rate,)) for kind, one in fastest.items()},
            sets=sets,
            cpu_share=min(one.cpu_s / (one.wall_s * self._cores) for one in fastest.values()),
            why_no=self._why_no,
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """The fastest of some runs: operations per second, seconds of the clock, seconds of all cores."""

    rate: float
    wall_s: float
    cpu_s: float


def _fastest(run: Callable[[], object], operations: int) -> _Run:
    run()
    runs: list[_Run] = []
    alone, spent_s = 0, 0.0
    while len(runs) < _LEAST_RUNS or spent_s < _LEAST_S or (alone < _LEAST_ALONE and spent_s < _MOST_S):
        switches, began_s, cpu_s = switches_so_far(), time.perf_counter(), time.process_time()
        run()
        wall_s = time.perf_counter() - began_s
        runs.append(_Run(operations / wall_s, wall_s, time.process_time() - cpu_s))
        alone, spent_s = alone + (switches_so_far() == switches), spent_s + wall_s
    return max(runs, key=lambda one: one.rate)


def _compiled(made: Any, shape: _Shape, cores: int) -> Callable[[], object]:
    config = {"INFERENCE_NUM_THREADS": str(cores), "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    request = core().compile_model(made, "CPU", config).create_infer_request()
    values = np.ones((1, shape.channels, shape.side, shape.side), np.float32)
    request.set_input_tensor(import_openvino().Tensor(values))
    infer: Callable[[], object] = request.infer
    return infer


def _float_chain(shape: _Shape) -> Any:
    ov = import_openvino()
    images = made = _images(shape)
    weights = np.full(_weights_shape(shape), 1 / (shape.channels * shape.kernel**2), np.float32)
    for _ in range(_CHAIN[Precision.FP32]):
        made = _convolution(made, ov.opset13.constant(weights), shape)
    return ov.Model([made], [images], "float")


def _int8_chain(shape: _Shape) -> Any:
    ov = import_openvino()
    opset = ov.opset13
    images = _images(shape)
    made = opset.fake_quantize(images, *_LEVELS, 256)
    scales = np.full((shape.channels, 1, 1, 1), 1 / (shape.channels * shape.kernel**2), np.float32)
    for _ in range(_CHAIN[Precision.INT8]):  # each takes the levels of the one before
        stored = opset.convert(opset.constant(np.ones(_weights_shape(shape), np.int8)), "f32")
        made = opset.fake_quantize(_convolution(made, opset.multiply(stored, scales), shape), *_LEVELS, 256)
    return ov.Model([made], [images], "int8")


def _images(shape: _Shape) -> Any:
    return import_openvino().opset13.parameter([1, shape.channels, shape.side, shape.side], np.float32)


def _weights_shape(shape: _Shape) -> tuple[int, int, int, int]:
    return shape.channels, shape.channels, shape.kernel, shape.kernel


def _convolution(read: Any, weights: Any, shape: _Shape) -> Any:
    pad = [shape.kernel // 2] * 2
    return import_openvino().opset13.convolution(read, weights, [1, 1], pad, pad, [1, 1])


def processor_name() -> str:
    """Return the name of the CPU, or of its architecture where the system does not tell it."""
    return next(_named(), platform.processor() or platform.machine())


def _named() -> Iterator[str]:
    for path, key in ((Path("/proc/cpuinfo"), "model name"), (Path("/proc/device-tree/model"), "")):
        if path.is_file():
            text = path.read_text(errors="replace")
            found = [line for line in text.splitlines() if line.startswith(key)]
            yield from (line.partition(":")[2].strip() if key else line.strip("\0 ") for line in found[:1])
