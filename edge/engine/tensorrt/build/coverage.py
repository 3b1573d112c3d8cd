"""The proof that the table reached the network: each scale was consumed, or is named."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.network import tensor_names
from edge.errors import EngineError
from edge.model.graph import graph_from_bytes
from edge.model.qdq.insert import QdqModel

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import INetworkDefinition

__all__ = ["Coverage", "implicit_coverage", "qdq_coverage"]

_log = logging.getLogger(__name__)
_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Scales of a table, held against a network.

    Attributes:
        given: how many scales there are.
        unused: tensors whose scale nothing in the network consumes.
        missing: tensors of the network that have none, where the network wants one; they compute in float.
    """

    given: int
    unused: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return plain values: counts, and all names."""
        return {
            "given": self.given,
            "consumed": self.given - len(self.unused),
            "unused": list(self.unused),
            "missing": list(self.missing),
        }

    def require_some(self, name: str) -> None:
        """Refuse a table of which nothing fits.

        Raises:
            EngineError: then.
        """
        if self.given == len(self.unused):
            told = ", ".join(f'"{one}"' for one in self.unused[:_TOLD]) or "it has none"
            raise EngineError(
                f"{name}: TensorRT's network consumes no scale of the table ({told})",
                hint="the table belongs to another ONNX file: calibrate this one",
            )
        if self.unused:
            _log.info("scales that nothing consumes model=%s tensors=%s", name, ", ".join(self.unused))


def implicit_coverage(network: INetworkDefinition, ranges: Mapping[str, float]) -> Coverage:
    """Return which of `ranges` are of tensors of the network, and which of its tensors have none."""
    names = tensor_names(network)
    unused = tuple(sorted(set(ranges) - names))
    return Coverage(given=len(ranges), unused=unused, missing=tuple(sorted(names - set(ranges))))


def qdq_coverage(
    library: TensorRtLibrary, network: INetworkDefinition, made: QdqModel, ranges: Mapping[str, float] | None
) -> Coverage:
    """Return which of the table's `ranges` the pairs of `made` state; None: the file's pairs are its own.

    Raises:
        EngineError: if a QuantizeLinear of the file is no layer of the network: what reads it would compute in float,
            and nobody would say so.
    """
    graph = graph_from_bytes(made.model, "the Q/DQ model")
    wanted = {node.outputs[0] for node in graph.nodes if node.op_type == "QuantizeLinear"}
    lost = sorted(wanted - set(_quantized(library, network)))
    if lost:
        told = ", ".join(f'"{name}"' for name in lost[:_TOLD])
        raise EngineError(f"the Q/DQ pairs of {len(lost)} tensors did not reach TensorRT's network: {told}")
    if ranges is None:
        return Coverage(given=len(wanted), unused=())
    return Coverage(given=len(ranges), unused=tuple(sorted(set(ranges) - set(made.ranges))))


def _quantized(library: TensorRtLibrary, network: INetworkDefinition) -> Iterator[str]:
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        if layer.type == library.trt.LayerType.QUANTIZE:
            yield layer.get_output(0).name
