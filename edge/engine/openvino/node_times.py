"""What each node of a compiled model takes: all of them, those included that no file has.

OpenVINO tells the mean of all runs since it compiled, in whole microseconds. So each block of runs is one of a model
that was compiled for it: the mean before the block is taken out of the mean behind it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.openvino.compiler import Compiler
from edge.errors import EngineError
from edge.roofline.efficiency import ExecutedNode
from edge.types import ModelSpec

__all__ = ["CpuNodeMeter", "RESOLUTION_S", "names_in_nodes", "switches_so_far"]

_ORIGINS = "originalLayersNames"
_PRODUCT = "/WithoutBiases"  # how OpenVINO's reader calls the product of a node whose bias it makes an Add of
_WARM_UPS = 3
_LEAST_RUNS, _LEAST_S = 16, 0.5
_FEWEST_RUNS, _MOST_S = 4, 2.0  # of a large model or batch, whose runs are long: few tell as much there
_CUT_OFF_S = 0.5e-6  # what is lost of a run on the average where whole microseconds are counted
RESOLUTION_S = 1.5e-6  # means before and behind a block are cut to whole microseconds, each run is too


class CpuNodeMeter:
    """`edge.engine.measuring.NodeMeter`.

    Args:
        spec: what the model is.
        names: of operators of the ONNX file.
        content: the model.
        rows: frames at once.
        cores: threads to run on.

    Raises:
        EngineError: if OpenVINO cannot read or compile the model.
    """

    def __init__(self, spec: ModelSpec, names: Collection[str], *, content: bytes, rows: int, cores: int) -> None:
        config = {
            "PERF_COUNT": "YES",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(cores),
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._spec = spec
        self._names = tuple(names)
        self._rows = rows
        self._compiler = Compiler(spec, config, content=content)
        # By place in the engine's order: names that OpenVINO makes up are others each time it compiles.
        self._blocks: list[dict[int, float]] = []
        self._fastest_run_s = float("inf")
        self._runs = self._interrupted_runs = 0
        self._nodes: list[ExecutedNode] = []

    @property
    def resolution_s(self) -> float:
        """What the clock cannot tell."""
        return RESOLUTION_S

    @property
    def run_s(self) -> float:
        """From a batch to its output, the fastest run of all."""
        return self._fastest_run_s

    @property
    def interrupted(self) -> float:
        """Part of the runs during which the system gave a core to somebody else."""
        return self._interrupted_runs / self._runs if self._runs else 0.0

    def measure(self) -> None:
        """Time one more block of runs."""
        compiled = self._compiler.compile(self._rows)
        told = {op.get_friendly_name(): op.get_rt_info() for op in compiled.get_runtime_model().get_ordered_ops()}
        if not self._nodes:
            self._nodes = self._executed(told)
        request = compiled.create_infer_request()
        try:
            before, behind, runs = self._block(request)
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: inference failed: {error}") from error
        taken = _of_block(before, behind, runs)
        self._blocks.append({place: taken[name] for place, name in enumerate(told) if name in taken})

    def nodes(self) -> list[ExecutedNode]:
        """Return the nodes that were run, each as in the block that was fastest for it."""
        fastest = {
            place: min(block[place] for block in self._blocks if place in block)
            for place in sorted({place for block in self._blocks for place in block})
        }
        return [replace(self._nodes[place], seconds=seconds) for place, seconds in fastest.items()]

    def _block(self, request: Any) -> tuple[dict[str, float], dict[str, float], int]:
        size = self._spec.preprocess.size
        images = np.random.default_rng(0).integers(0, 256, (self._rows, size.height, size.width, 3), np.uint8)
        for _ in range(_WARM_UPS):
            request.infer([images])
        before, runs, spent_s = _means(request), 0, 0.0
        while not _is_enough(runs, spent_s):
            run_s = self._timed(request, images)
            runs, spent_s = runs + 1, spent_s + run_s
        return before, _means(request), runs

    def _timed(self, request: Any, images: NDArray[np.uint8]) -> float:
        switches, began_s = switches_so_far(), time.perf_counter()
        request.infer([images])
        run_s = time.perf_counter() - began_s
        self._runs += 1
        self._interrupted_runs += switches_so_far() > switches
        self._fastest_run_s = min(self._fastest_run_s, run_s)
        return run_s

    def _executed(self, told: Mapping[str, Any]) -> list[ExecutedNode]:
        layers = names_in_nodes({name: _word(info, _ORIGINS) for name, info in told.items()}, self._names)
        return [
            ExecutedNode(
                name=name,
                kind=f"{_word(info, 'layerType')} {_word(info, 'primitiveType')}",
                layers=layers[name],
                seconds=0.0,
            )
            for name, info in told.items()
        ]


def names_in_nodes(origins: Mapping[str, str], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return which of `names` went into each node.

    Args:
        origins: of each node of the engine the names that went into it, joined by commas.
        names: of operators in the ONNX file; a comma inside one does no harm.
    """
    found: dict[str, frozenset[str]] = {}
    for node, joined in origins.items():
        text = f",{joined},"
        found[node] = frozenset(name for name in names if f",{name}," in text or f",{name}{_PRODUCT}," in text)
    return found


def _is_enough(runs: int, spent_s: float) -> bool:
    """Return whether a block may end."""
    return (runs >= _LEAST_RUNS and spent_s >= _LEAST_S) or (runs >= _FEWEST_RUNS and spent_s >= _MOST_S)


def _of_block(before: Mapping[str, float], behind: Mapping[str, float], runs: int) -> dict[str, float]:
    """Return the mean of the runs of a block, of nodes that took any time."""
    all_runs = _WARM_UPS + runs
    means = {name: (all_runs * mean - _WARM_UPS * before.get(name, 0.0)) / runs for name, mean in behind.items()}
    return {name: max(mean, 0.0) + _CUT_OFF_S for name, mean in means.items()}


def switches_so_far() -> int:
    """Return how often threads of this process had to leave a core to others."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _means(request: Any) -> dict[str, float]:
    done = (info for info in request.get_profiling_info() if info.status == info.Status.EXECUTED)
    return {info.node_name: info.real_time.total_seconds() for info in done}


def _word(info: Mapping[str, Any], key: str) -> str:
    return str(info[key].astype(str)) if key in info else ""
