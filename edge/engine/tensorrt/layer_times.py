"""What each layer costs on the GPU, as TensorRT's own profile tells it, under the names of the ONNX file.

TensorRT's layer is the unit: what it fused is timed as one, and never shared out among the nodes that went into it.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from edge.engine.nodes import nodes_of_lone_layers
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.profiling import ENGINE_STEP, ProfiledPlan
from edge.roofline.efficiency import ExecutedNode
from edge.types import ModelSpec

__all__ = ["GpuNodeMeter", "LayerProfiler", "RESOLUTION_S"]

RESOLUTION_S = 1e-6  # both events of a pair, of half a microsecond each by CUDA's manual
WARM_S = 0.3
"""Until then the clocks of a GPU that was idle have gone up."""
LEAST_S, _LEAST_RUNS = 0.5, 16


class GpuNodeMeter:
    """`edge.engine.measuring.NodeMeter`: holds the GPU only while it measures.

    Args:
        library: TensorRT.
        header: of the plan.
        content: what TensorRT serialized.
        spec: what the model is.
        names: of operators of the ONNX file.
        rows: frames at once.
    """

    def __init__(
        self,
        library: TensorRtLibrary,
        header: PlanHeader,
        content: bytes,
        spec: ModelSpec,
        names: Collection[str],
        *,
        rows: int,
    ) -> None:
        self._open = functools.partial(ProfiledPlan, library, header, content, spec, names, rows=rows)
        size = spec.preprocess.size
        self._images = np.random.default_rng(0).integers(0, 256, (rows, size.height, size.width, 3), np.uint8)
        self._nodes: dict[str, ExecutedNode] = {}
        self._fastest_run_s = float("inf")

    @property
    def resolution_s(self) -> float:
        """What the GPU's clock cannot tell."""
        return RESOLUTION_S

    @property
    def run_s(self) -> float:
        """From a batch to its output, the fastest run of all, without the profiler."""
        return self._fastest_run_s

    @property
    def interrupted(self) -> float:
        """0: whether others use the GPU meanwhile is not told."""
        return 0.0

    def measure(self) -> None:
        """Time one more block of runs, first as they are, then with the profiler.

        Raises:
            EngineError: if an inference failed, or TensorRT reports nothing of it.
        """
        with contextlib.closing(self._open()) as plan:
            plan.fill(self._images)
            _block(plan.step_seconds, least_s=WARM_S)
            runs = _block(plan.step_seconds, least_s=LEAST_S)
            self._fastest_run_s = min(self._fastest_run_s, *(sum(run.values()) for run in runs))
            steps = {name: seconds for name, seconds in _medians(runs).items() if name != ENGINE_STEP}
            for name, seconds in steps.items():
                self._keep(ExecutedNode(name=name, kind=name.replace(" ", "-"), layers=frozenset(), seconds=seconds))
            for name, seconds in _medians(_block(plan.layer_seconds, least_s=LEAST_S)).items():
                origin = plan.origins.of(name)
                self._keep(ExecutedNode(name=name, kind=origin.kind, layers=origin.nodes, seconds=seconds))

    def nodes(self) -> list[ExecutedNode]:
        """Return the layers that TensorRT ran, and the steps around it, each as in its fastest block."""
        return list(self._nodes.values())

    def _keep(self, node: ExecutedNode) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node if before is None or node.seconds < before.seconds else before


class LayerProfiler:
    """`edge.engine.kind.LayerProfiler`: holds the GPU until `close`.

    Args:
        plan: it is closed with this.
        layers: names of nodes in the ONNX file.
    """

    def __init__(self, plan: ProfiledPlan, layers: Collection[str]) -> None:
        self._plan, self._layers = plan, tuple(layers)
        self._runs: list[dict[str, float]] = []

    def warm_up(self, images: NDArray[np.uint8]) -> None:
        """Infer without keeping the times; `images` as in `run`."""
        self._plan.fill(images)
        self._plan.layer_seconds()

    def run(self, images: NDArray[np.uint8]) -> None:
        """Infer `images`, uint8 (batch of the model or 1, H, W, 3) RGB, and keep the times.

        Raises:
            EngineError: if the inference failed, or TensorRT reports nothing of it.
        """
        self._plan.fill(images)
        self._runs.append(self._plan.layer_seconds())

    def times(self) -> dict[str, NDArray[np.float64]]:
        """Return seconds for one frame in each run, float64 (runs,), by layer.

        A layer that TensorRT cut into several is their sum. It is left out where one of them is another one of the
        layers, too, and where no layer of TensorRT's is known to be it.
        """
        names = dict.fromkeys(name for run in self._runs for name in run)
        lone = nodes_of_lone_layers({name: self._plan.origins.of(name).nodes for name in names})
        return {
            layer: np.array([sum(run.get(name, 0.0) for name in lone[layer]) for run in self._runs])
            / self._plan.max_batch
            for layer in self._layers
            if layer in lone
        }

    def close(self) -> None:
        """Free the GPU."""
        self._plan.close()


def _block(run: Callable[[], Mapping[str, float]], *, least_s: float) -> list[Mapping[str, float]]:
    """Return what the runs of some time told, the host's time for them included."""
    runs: list[Mapping[str, float]] = []
    began_s = time.perf_counter()
    while len(runs) < _LEAST_RUNS or time.perf_counter() - began_s < least_s:
        runs.append(run())
    return runs


def _medians(runs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each name over the runs that have it."""
    told: dict[str, list[float]] = {}
    for run in runs:
        for name, seconds in run.items():
            told.setdefault(name, []).append(seconds)
    return {name: float(np.median(seconds)) for name, seconds in told.items()}
