"""What a kind of engine does that can measure its machine, and what its own nodes take there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from edge.roofline.efficiency import ExecutedNode
from edge.roofline.measured import MeasuredMachine
from edge.types import ModelSpec, Precision

__all__ = ["MeasuringKind", "NodeMeter", "RoofMeter"]


class RoofMeter(Protocol):
    """Measures what this machine can do at most."""

    def measure(self) -> MeasuredMachine:
        """Return what one more round reached; rounds of one meter can be put together."""
        ...


class NodeMeter(Protocol):
    """Times all nodes that an engine runs for a model."""

    @property
    def resolution_s(self) -> float:
        """What the engine's clock cannot tell."""
        ...

    @property
    def run_s(self) -> float:
        """From a batch to its output, the fastest run of all blocks."""
        ...

    @property
    def interrupted(self) -> float:
        """Part of the runs, 0 to 1, during which others had a core: their nodes are measured too slow."""
        ...

    def measure(self) -> None:
        """Time one more block of runs.

        Raises:
            EngineError: if the inference failed.
        """
        ...

    def nodes(self) -> Sequence[ExecutedNode]:
        """Return the nodes that were run, each as in the block that was fastest for it."""
        ...


@runtime_checkable
class MeasuringKind(Protocol):
    """A kind that can measure its machine and its own nodes, on a chosen number of cores where it runs on such."""

    @property
    def cores(self) -> int:
        """How many there are for this process to choose from; 1 where a GPU is measured as a whole."""
        ...

    @property
    def is_processor(self) -> bool:
        """Whether it computes on the cores that also decode and read."""
        ...

    @property
    def precisions(self) -> tuple[Precision, Precision]:
        """A float type and INT8: what INT8 leaves in float is computed in the first."""
        ...

    def roof_meter(self, *, cores: int) -> RoofMeter:
        """Return what measures peaks and bandwidths."""
        ...

    def node_meter(
        self, spec: ModelSpec, names: Collection[str], *, content: bytes, rows: int, cores: int
    ) -> NodeMeter:
        """Return what times the nodes of a plan that `build` returned.

        Args:
            spec: what the model is; quantized where `content` is.
            names: of operators of the ONNX file; it is told which of them went into a node.
            content: the plan.
            rows: frames at once.
            cores: to run on.
        """
        ...
