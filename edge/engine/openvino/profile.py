"""OpenVINO's own profile of a model's layers, under the names of the ONNX file.

OpenVINO fuses: of a convolution, its bias, its SiLU and the quantization behind it one node is left, which is executed,
timed and named after one of them. The compiled model says which nodes of the file went into it (`originalLayersNames`);
names that merely look alike are never taken for each other.

The time that OpenVINO reports of a node is the mean of all inferences so far, in whole microseconds: one interruption
would lie in every later run. Times of runs are differences of the sums behind those means, and uncertain by as many
microseconds as there were inferences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import nodes_of_lone_layers
from edge.engine.openvino.compiler import Compiler
from edge.errors import EngineError
from edge.types import ModelSpec

__all__ = ["OpenVinoLayerProfiler", "executed_node_of_layers", "names_in_nodes"]

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
