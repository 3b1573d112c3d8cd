"""OpenVINO's own profile of a model's layers, under the names of the ONNX file.

OpenVINO fuses: of a convolution, its bias, its SiLU and the quantization behind it one node is left, which is executed,
timed and named after one of them. The compiled model says which nodes of the file went into it (`originalLayersNames`);
names that merely look alike are never taken for each other.

The time that OpenVINO reports of a node is the mean of all inferences so far, in whole microseconds: one interruption
would lie in every later run. Times of runs are differences of the sums behind those means, and uncertain by as many
microseconds as there were inferences. The peaks of a CPU are convolutions by OpenVINO, INT8 and FP32, and copying in
memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import Peak, nodes_of_lone_layers
from edge.engine.kinds import available_cores
from edge.engine.openvino.binding import core, import_openvino, why_int8_in_float
from edge.engine.openvino.compiler import Compiler
from edge.errors import EngineError
from edge.types import ModelSpec

__all__ = ["OpenVinoLayerProfiler", "cpu_peaks", "executed_node_of_layers", "names_in_nodes"]

_ORIGINS = "originalLayersNames"
_PRODUCT = "/WithoutBiases"  # how OpenVINO's reader calls the product of a node whose bias it makes an Add of
_CONFIG = {"PERF_COUNT": "YES", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}


class OpenVinoLayerProfiler:
    """Times single layers on one thread, with everything that OpenVINO fused into them.

    Reordering in front of a layer is a node of its own in the engine, and not in its time. `layers`: names of nodes in
    the ONNX file. `content`: the model, where it is not what the file of `spec` holds. Raises `EngineError` if OpenVINO
    cannot read or compile the model; MissingDependencyError if openvino is not installed.
    """

    def __init__(self, spec: ModelSpec, layers: Collection[str], *, content: bytes | None = None) -> None:
        self._spec = spec
        self._rows = spec.batch or 1
        compiled = Compiler(spec, _CONFIG, content=content).compile(self._rows)
        self._executed = executed_node_of_layers(_origins(compiled), layers)
        self._request = compiled.create_infer_request()
        self._inferences = 0
        self._total_s: dict[str, float] = {}
        self._runs: list[dict[str, float]] = []

    def warm_up(self, images: NDArray[np.uint8]) -> None:
        try:
            self._request.infer([images])
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: inference failed: {error}") from error
        self._inferences += 1
        mean_s = {info.node_name: info.real_time.total_seconds() for info in _executed(self._request)}
        self._total_s = {layer: self._inferences * mean_s.get(node, 0.0) for layer, node in self._executed.items()}

    def run(self, images: NDArray[np.uint8]) -> None:
        """Raises `EngineError` if the inference failed."""
        before_s = self._total_s
        self.warm_up(images)
        self._runs.append(
            {layer: max(0.0, total_s - before_s.get(layer, 0.0)) for layer, total_s in self._total_s.items()}
        )

    def times(self) -> dict[str, NDArray[np.float64]]:
        """Return seconds for one frame in each run, float64 (runs,), by layer; 0 where it took less than a microsecond.

        A layer is left out where no node of the engine is known to be it alone: it was fused with another one of
        `layers`, cut into several nodes, or computed once and for all.
        """
        # OpenVINO counts whole microseconds, and says of a layer that took none that it was not run: on a fast CPU a
        # small layer is so in every run.
        return {layer: np.array([run[layer] for run in self._runs]) / self._rows for layer in self._executed}

    def close(self) -> None:
        del self._request


def executed_node_of_layers(origins: Mapping[str, str], layers: Collection[str]) -> dict[str, str]:
    """Return which node of an engine is each of `layers`, where exactly one is, and is no other of them too.

    `origins`: of each node of the engine the names that went into it, joined by commas. `layers`: names in the ONNX
    file; a comma inside a name does no harm.
    """
    nodes_of = nodes_of_lone_layers(names_in_nodes(origins, layers))
    return {layer: nodes[0] for layer, nodes in nodes_of.items() if len(nodes) == 1}


def names_in_nodes(origins: Mapping[str, str], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return which of `names` went into each node; arguments as in `executed_node_of_layers`."""
    found: dict[str, frozenset[str]] = {}
    for node, joined in origins.items():
        text = f",{joined},"
        found[node] = frozenset(name for name in names if f",{name}," in text or f",{name}{_PRODUCT}," in text)
    return found


def _origins(compiled: Any) -> dict[str, str]:
    """Return what the nodes of a compiled model were made of; constants are not executed and left out."""
    found: dict[str, str] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        if _ORIGINS in info and str(info["layerType"].astype(str)) != "Const":
            found[node.get_friendly_name()] = str(info[_ORIGINS].astype(str))
    return found


def _executed(request: Any) -> Iterable[Any]:
    return (info for info in request.get_profiling_info() if info.status == info.Status.EXECUTED)


_LEAST_S, _LEAST_RUNS = 0.3, 5
# Convolutions as large detectors have them: they compute enough for each byte not to wait for memory.
_CHANNELS, _SIDE, _KERNEL = 256, 40, 3
_WEIGHTS = (_CHANNELS, _CHANNELS, _KERNEL, _KERNEL)
_COPY_BYTES = 256 << 20  # more than caches hold


def cpu_peaks() -> Iterator[Peak]:
    """Yield the peaks of the CPU, on all cores that this process may use.
    Raises `MissingDependencyError` if openvino is not installed.
    """
    yield _int8()
    yield _fp32()
    yield _copy()


def _int8() -> Peak:
    name = "int8 convolution"
    if (why := why_int8_in_float()) is not None:
        return Peak(name=name, unit="TOPS", value=None, detail=f"not measured: {why}")
    opset = import_openvino().opset13
    scales = np.full((_CHANNELS, 1, 1, 1), 1 / (_CHANNELS * _KERNEL**2), np.float32)
    weights = opset.multiply(opset.convert(opset.constant(np.ones(_WEIGHTS, np.int8)), "f32"), scales)
    limits = (np.float32(0), np.float32(255)) * 2
    how = "uint8 by int8 to int32, laid out as OpenVINO likes it, with what turns float into levels"
    return _convolved(name, weights, lambda made: opset.fake_quantize(made, *limits, 256), how)


def _fp32() -> Peak:
    weights = import_openvino().opset13.constant(np.ones(_WEIGHTS, np.float32))
    return _convolved("fp32 convolution", weights, lambda made: made, "laid out as OpenVINO likes it")


def _convolved(name: str, weights: Any, stored: Callable[[Any], Any], how: str) -> Peak:
    """Time two convolutions; `stored` makes of a tensor what is read of it."""
    ov, cores = import_openvino(), available_cores()
    shape = (cores, _CHANNELS, _SIDE, _SIDE)
    images = ov.opset13.parameter(shape, np.float32)
    made = stored(images)
    for _ in range(2):  # the second takes what the first has stored, and its time is most of the whole
        made = stored(ov.opset13.convolution(made, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    config = {"INFERENCE_NUM_THREADS": str(cores), "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    request = core().compile_model(ov.Model([made], [images], name), "CPU", config).create_infer_request()
    request.set_input_tensor(ov.Tensor(np.zeros(shape, np.float32)))
    operations = 2 * 2 * cores * _CHANNELS * _CHANNELS * _KERNEL**2 * _SIDE**2
    value = round(operations / _fastest_s(request.infer) / 1e12, 3)
    detail = f"{cores} cores: two of {_CHANNELS} channels, {_KERNEL} x {_KERNEL} at {_SIDE} x {_SIDE}, {how}"
    return Peak(name=name, unit="TOPS", value=value, detail=detail)


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


def _fastest_s(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs; the first, which is not counted, touches the memory."""
    run()
    times_s: list[float] = []
    while len(times_s) < _LEAST_RUNS or sum(times_s) < _LEAST_S:
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return min(times_s)
