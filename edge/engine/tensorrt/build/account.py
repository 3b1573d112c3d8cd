"""Which layers of a plan compute in which precision, as TensorRT's inspector tells; 11 changed its JSON.

And the proof that the table reached the network: each scale was consumed, or is named.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.network import tensor_names
from edge.engine.tensorrt.plan import read_device
from edge.errors import EngineError
from edge.model.graph import Graph, graph_from_bytes
from edge.model.qdq.insert import QdqModel

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ICudaEngine, ILogger, INetworkDefinition

__all__ = [
    "Coverage",
    "PlanAccount",
    "implicit_coverage",
    "inspected",
    "inspector_text",
    "layers_of",
    "plan_account_of",
    "qdq_coverage",
]

_log = logging.getLogger(__name__)
_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Scales of a table, held against a network."""

    given: int  # how many scales there are
    unused: tuple[str, ...]  # tensors whose scale nothing in the network consumes
    # tensors of the network that have none, where the network wants one; they compute in float
    missing: tuple[str, ...] = ()
    # Sub and Pad in front of Quantize layers, which take centres off in float; TensorRT's importers make slices
    # of Pad, and may fuse neither
    float_layers: int = 0

    def as_json(self) -> dict[str, object]:
        return {
            "given": self.given,
            "consumed": self.given - len(self.unused),
            "unused": list(self.unused),
            "missing": list(self.missing),
            "float_layers_before_quantize": self.float_layers,
        }

    def require_some(self, name: str) -> None:
        """Refuse a table of which nothing fits. Raises `EngineError`: then."""
        if self.given == len(self.unused):
            told = ", ".join(f'"{one}"' for one in self.unused[:_TOLD]) or "it has none"
            raise EngineError(
                f"{name}: TensorRT's network consumes no scale of the table ({told})",
                hint="the table belongs to another ONNX file: calibrate this one",
            )
        if self.unused:
            _log.info("unused calibration scales model=%s tensors=%s", name, ", ".join(self.unused))


def implicit_coverage(network: INetworkDefinition, ranges: Mapping[str, float]) -> Coverage:
    names = tensor_names(network)
    unused = tuple(sorted(set(ranges) - names))
    return Coverage(given=len(ranges), unused=unused, missing=tuple(sorted(names - set(ranges))))


def qdq_coverage(
    library: TensorRtLibrary, network: INetworkDefinition, made: QdqModel, ranges: Mapping[str, float] | None
) -> Coverage:
    """Return which of the table's `ranges` the pairs of `made` state; None: the file's pairs are its own.

    Raises `EngineError` if a QuantizeLinear of the file is no layer of the network: what reads it would compute in
    float, and nothing would say so.
    """
    graph = graph_from_bytes(made.model, "the Q/DQ model")
    wanted = {node.outputs[0] for node in graph.nodes if node.op_type == "QuantizeLinear"}
    lost = sorted(wanted - set(_quantized(library, network)))
    if lost:
        told = ", ".join(f'"{name}"' for name in lost[:_TOLD])
        raise EngineError(f"the Q/DQ pairs of {len(lost)} tensors did not reach TensorRT's network: {told}")
    between = len(_float_layers(graph))
    if ranges is None:
        return Coverage(given=len(wanted), unused=(), float_layers=between)
    return Coverage(given=len(ranges), unused=tuple(sorted(set(ranges) - set(made.ranges))), float_layers=between)


def _float_layers(graph: Graph) -> set[str]:
    """Return the outputs of each Sub and Pad from which only more of them lead to a QuantizeLinear."""
    found: set[str] = set()
    for node in graph.nodes:
        producer = graph.producer(node.inputs[0]) if node.op_type == "QuantizeLinear" else None
        while producer is not None and producer.op_type in ("Sub", "Pad"):
            found.add(producer.outputs[0])
            producer = graph.producer(producer.inputs[0])
    return found


def _quantized(library: TensorRtLibrary, network: INetworkDefinition) -> Iterator[str]:
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        if layer.type == library.trt.LayerType.QUANTIZE:
            yield layer.get_output(0).name


def inspected(library: TensorRtLibrary, logger: ILogger, content: bytes, dla_core: int | None) -> PlanAccount | None:
    """Return which layers of `content`, what TensorRT serialized, compute in which precision; None where unknown.

    A runtime without a driver crashes when it is used, so the driver is asked first.
    """
    try:
        read_device()
    except EngineError as error:
        _log.info("engine inspection failed reason=%s", error.problem)
        return None
    trt = library.trt
    runtime = trt.Runtime(logger)
    if dla_core is not None:
        runtime.DLA_core = dla_core  # else core 0 is used, whatever the plan was built for
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        return None  # which the gate, that loads it next, tells with its reason
    return plan_account_of(inspector_text(library, engine))


def inspector_text(library: TensorRtLibrary, engine: ICudaEngine) -> str:
    """Return the JSON of an engine's inspector."""
    inspector = engine.create_engine_inspector()
    return str(inspector.get_engine_information(library.trt.LayerInformationFormat.JSON))


def layers_of(text: str) -> list[Any]:
    """Return the layers in an inspector's JSON, none where it holds none; without detailed verbosity they are names."""
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return layers if isinstance(layers, list) else []


_FLOAT32, _FLOAT16, _INT8 = "fp32", "fp16", "int8"
# "Format/Datatype" of an output: "Channel major FP32 format ...", "Thirty-two wide channel vectorized row major Int8
# format"; since 11 a datatype of its own.
_WORDS = ((_INT8, r"int8"), (_FLOAT16, r"fp16|half|float16|bf16"), (_FLOAT32, r"fp32|float32|\bfloat\b"))
_MOVES = ("Reformat", "NoOp", "Shuffle", "Constant", "signal", "wait")
_OPTIMISED_KERNEL = re.compile(r"i8i8|imma|int8|_i8|s8s8", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAccount:
    """Layers of a plan by precision; `reformats` only move data."""

    by_precision: Mapping[str, int]
    reformats: int
    layers: tuple[tuple[str, str], ...]

    @property
    def line(self) -> str:
        """For people: `51 layers int8, 12 fp16; 4 reformats`."""
        known = [
            f"{self.by_precision[name]} {name}"
            for name in (_INT8, _FLOAT16, _FLOAT32, "?")
            if self.by_precision.get(name)
        ]
        return f"layers {', '.join(known) or 'unknown'}; {self.reformats} reformats"

    def as_json(self) -> dict[str, object]:
        return {
            "line": self.line,
            "by_precision": dict(self.by_precision),
            "reformats": self.reformats,
            "layers": [{"name": name, "precision": precision} for name, precision in self.layers],
        }


def plan_account_of(text: str) -> PlanAccount | None:
    """None where the inspector's JSON holds no layers, or only their names."""
    read = [layer for layer in layers_of(text) if isinstance(layer, dict)]
    if not read:
        return None
    moves = [layer for layer in read if str(layer.get("LayerType", "")).startswith(_MOVES)]
    works = [(str(layer.get("Name", "?")), _precision(layer)) for layer in read if layer not in moves]
    return PlanAccount(
        by_precision=dict(Counter(precision for _, precision in works)),
        reformats=len(moves),
        layers=tuple(works),
    )


def _precision(layer: Mapping[str, object]) -> str:
    """Return what a layer computes in: the tactic's name tells INT8, else the types of what it reads do."""
    if _OPTIMISED_KERNEL.search(str(layer.get("TacticName", ""))):
        return _INT8
    for key in ("Inputs", "Outputs"):
        found = {word for tensor in _listed(layer.get(key)) for word in _words(tensor)}
        for precision, _ in _WORDS:
            if precision in found:
                return precision
    return "?"


def _listed(value: object) -> Iterable[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _words(tensor: Mapping[str, object]) -> Iterable[str]:
    told = " ".join(
        str(tensor.get(key, "")) for key in ("Format/Datatype", "Datatype", "DataType", "Data Type", "Format")
    )
    return [name for name, pattern in _WORDS if re.search(pattern, told, re.IGNORECASE)]
