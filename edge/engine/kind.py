"""Protocols of a kind of engine: it builds a plan for this machine, loads it, and looks into a model.

`edge.engine.kinds` finds the kinds; `load_kind` gives their working half. What a kind builds from is handed to it in
whatever form it asks for (`ModelForms`), so that it knows neither tables nor pipeline files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.engine.kinds import AUTO, choose_kind, facts_of_kind, kinds
from edge.errors import ConfigError
from edge.model.qdq.insert import QdqModel
from edge.protocols import ActivationEngine, AveragingEngine, Engine, ObservingEngine
from edge.types import ModelSpec, Precision

if TYPE_CHECKING:  # serving proves nothing
    from edge.roofline.proof import Row

__all__ = [
    "CalibratingKind",
    "DoctorFinding",
    "EngineKind",
    "EngineRequest",
    "Int8Form",
    "LayerProfiler",
    "ModelForms",
    "Peak",
    "PeakingKind",
    "Plan",
    "ProofForm",
    "ProvingKind",
    "QdqForm",
    "RacingKind",
    "build_and_load",
    "load_kind",
    "nodes_of_lone_layers",
    "quick_kind",
    "usable_kind",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QdqForm:
    """How a Q/DQ model is written."""

    float_type: Literal["float32", "float16"] = "float32"  # of what stays in float
    # `int8` stores them behind a DequantizeLinear, a quarter of the bytes; `float` puts a pair behind float weights,
    # which is what TensorRT 8 takes
    weights: Literal["int8", "float"] = "int8"
    # `int8` is symmetric, centres are taken off in front of it, as TensorRT takes it; `uint8` has centres as zero
    # points. The levels are the same
    activations: Literal["int8", "uint8"] = "int8"
    # tensors are quantized around the centres of the table; False: around 0, in steps that are up to twice as large,
    # without a Sub and a Pad in front of them
    has_centres: bool = True


class ModelForms(Protocol):
    """One model in each of the forms that an engine kind may ask for; each is made when it is first asked for."""

    @property
    def spec(self) -> ModelSpec:
        """Description of the model's file."""

    def float_model(self, *, is_float16: bool = False) -> bytes:
        """Return the ONNX as it is, or computing in float16 with float32 input and output.
        Raises `ModelError` if it cannot be converted, or carries Q/DQ pairs and is to be converted.
        """

    def qdq_model(self, form: QdqForm) -> QdqModel:
        """Return the ONNX with Q/DQ pairs: its own where it carries them, else by its calibration table.
        Raises `ModelError` if it cannot be converted; CalibrationError if there is no table.
        """

    @property
    def ranges(self) -> Mapping[str, float] | None:
        """Largest absolute activation by tensor, of the table; None where there is no table."""

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Nodes and tensors that the table leaves in float."""

    @property
    def has_centres(self) -> bool:
        """Whether the table centres tensors, so that `QdqForm.has_centres` makes a difference."""

    @property
    def beyond_ranges(self) -> tuple[str, ...]:
        """Statements of the table beyond its ranges, and the cost of their absence: ranges and a cache lack them."""

    def calibration_cache(self, *, version: int, calibrator: str) -> bytes:
        """Return the table as a TensorRT calibration cache with the header `TRT-<version>-<calibrator>`.
        Raises `CalibrationError` if there is no table, or a scale cannot be written.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """Request to a build, and to the engine that is loaded from it."""

    precision: Precision
    max_batch: int  # most frames at once
    options: msgspec.Struct
    # detections at or below it are of no use to anybody, so that an engine may leave them on the device; None: the raw
    # output is wanted
    score_threshold: float | None = None
    cache_folder: Path | None = None  # where what makes the next build faster is kept; None: nowhere
    is_beside: bool = False  # a service runs meanwhile, so that what is timed depends on it
    # several engines run side by side, so that each is given one thread of a CPU, and what it computes does not depend
    # on how many there are
    is_one_of_many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A built engine as a device keeps it: `report` is plain JSON for `build.json` and `status`."""

    data: bytes
    report: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that was looked for on a machine; `is_needed` tells that something does not work without it."""

    name: str
    is_there: bool
    detail: str
    is_needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Measured peak of a machine in one respect."""

    name: str  # of what was measured, as `int8 tensor cores`
    unit: Literal["TOPS", "GB/s"]  # `TOPS` (a multiply and its add are two operations) or `GB/s`
    value: float | None  # None where it could not be measured
    detail: str  # how it was measured, or why it was not
    ceiling: float | None = None  # by the table of machines, where it is one of it

    def as_json(self) -> dict[str, Any]:
        is_known = self.value is not None and self.ceiling is not None
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.value,
            "ceiling": self.ceiling,
            "share": round(self.value / self.ceiling, 4) if is_known and self.value and self.ceiling else None,
            "detail": self.detail,
        }


class LayerProfiler(Protocol):
    """Times single layers of a model, with everything that the engine fused into them."""

    def warm_up(self, images: NDArray[np.uint8]) -> None:
        """Infer without keeping the times; `images` as in `run`."""

    def run(self, images: NDArray[np.uint8]) -> None:
        """Infer `images`, uint8 (batch of the model or 1, H, W, 3) RGB, and keep the times."""

    def times(self) -> Mapping[str, NDArray[np.float64]]:
        """Return seconds for one frame in each run, float64 (runs,), by layer; fused layers lack."""

    def close(self) -> None:
        """Free what it holds."""


class EngineKind(Protocol):
    """One way to run models: the working half of a kind whose facts are in `edge.engine.kinds`."""

    name: str  # as in a pipeline file
    options_type: type[msgspec.Struct]  # its keys in the `engine` section of a pipeline file, all with defaults

    def build(
        self, model: ModelForms, request: EngineRequest, *, on_progress: Callable[[str, float], None] = ...
    ) -> Plan:
        """Return a plan for this machine; `on_progress` takes a phase and the done share of it, 0 to 1.
        Raises `EngineError` if it cannot be built here, saying what is missing and how to get it.
        """

    def load(self, plan: bytes, spec: ModelSpec, request: EngineRequest) -> Engine:
        """Return the engine of a plan that `build` returned for the same `spec` and `request`.
        Raises `EngineError` if it is of another version or device, damaged, or cannot run here.
        """

    def activations(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> ActivationEngine:
        """Return an engine that gives out tensors of the ONNX file or of `content`."""

    def observing(
        self,
        spec: ModelSpec,
        tensors: Sequence[str],
        *,
        largest_of: Collection[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> ObservingEngine:
        """Return an engine that gives `tensors` or counts of them, and the largest |x| of `largest_of`.

        They are tensors of the ONNX file or of `content`. What `activations` returns will do, if it can do the latter.
        """

    def averaging(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> AveragingEngine:
        """Return an engine that gives the mean of each channel of `tensors` of the ONNX file or of `content`.

        `edge.engine.averaging.Averaging` makes one of what `activations` returns.
        """

    def profiler(self, spec: ModelSpec, layers: Collection[str], *, content: bytes | None = None) -> LayerProfiler:
        """Return what times `layers`, nodes of the ONNX file or of `content`."""

    def examine(self) -> Iterator[DoctorFinding]:
        """Yield what of this kind is installed, which route a build takes and why, what is known bad; for doctor.

        Also asked where the kind cannot run: what stands in its way then, beside the reason that its facts give.
        """


@runtime_checkable
class PeakingKind(Protocol):
    """A kind that can measure what its machine reaches at most."""

    def peaks(self) -> Iterator[Peak]:
        """Yield each peak as it is measured, some tenths of a second each; also those that this machine has not.
        Raises `EngineError` if nothing of this kind runs here.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Form:
    """A way to INT8 that a kind can build: its name in reports, and the request that asks for it alone."""

    name: str
    request: EngineRequest


@runtime_checkable
class RacingKind(Protocol):
    """A kind of which it cannot be known without building which form of INT8 is the fastest."""

    def int8_forms(self, model: ModelForms, request: EngineRequest) -> tuple[Int8Form, ...]:
        """Return the forms that `request` leaves open, the one that was proven first; one where it leaves no choice.
        Raises `EngineError` if the library has no way to INT8.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofForm:
    """One way in which a kind can build a model, to be held against the others on a machine.

    `is_beside`: it leaves what it can to a unit beside the one that computes else.
    """

    name: str
    precision: Precision
    options: msgspec.Struct
    is_beside: bool = False


@runtime_checkable
class ProvingKind(Protocol):
    """A kind that can prove what it stands on, and has several ways to build a model; for `prove`."""

    def proofs(self, *, is_brief: bool) -> Iterator[Row]:
        """Yield what the machine's unit does, held against numpy; briefly: only whether it does so at all.
        Raises `EngineError` if there is none, or it cannot be used.
        """

    def forms(self) -> Iterator[ProofForm]:
        """Yield the ways that the library has here, those that are not INT8 first.
        Raises `EdgeError` if nothing can be built here, with what is missing.
        """


@runtime_checkable
class CalibratingKind(Protocol):
    """A kind whose library finds ranges itself and writes them as a TensorRT calibration cache."""

    # those that a library of this kind may have, as `--calibrator` names them, whatever is installed here
    calibrators: tuple[str, ...]

    def calibrator_cache(
        self,
        model: ModelForms,
        calibrator: str,
        batches: Iterator[NDArray[np.uint8]],
    ) -> bytes:
        """Return the calibration cache that a calibrator of the library writes of the float model.
        Raises `EngineError` if the library is not here, has no such calibrator or cannot run, saying how to get one
        that does; or if it wrote no cache.

        Args:
            model: its `float_model` is looked at; tensors of the cache have the names of the ONNX file.
            calibrator: one of `calibrators`.
            batches: uint8 (B, H, W, 3) RGB canvases, letterboxed; one B for all of them, that of the model where it
                is fixed. Drawn one by one, and not kept. What it raises comes out as it is, also through a callback of
                the library.
        """


def load_kind(name: str) -> EngineKind:
    """Return the working half of a kind, `KIND` of its `kind.py`. Raises ConfigError if there is none of that name."""
    facts_of_kind(name)
    kind: EngineKind = importlib.import_module(f"edge.engine.{name}.kind").KIND
    return kind


def usable_kind(name: str = AUTO) -> EngineKind:
    """Return the kind of that name, or the one that `auto` stands for, which this machine can run.
    Raises `ConfigError` if there is none of that name, or it cannot run here, with what is missing and how to get it.
    """
    facts = choose_kind(name).facts
    if (why_not := facts.why_not()) is not None:
        raise ConfigError(f"engine {name}: cannot run here: {why_not}")
    return load_kind(facts.name)


def quick_kind(kind: EngineKind) -> EngineKind:
    """Return `kind` if it builds in seconds, else the best one here that does; `kind` itself where there is none."""
    if facts_of_kind(kind.name).is_quick:
        return kind
    others = (facts.name for facts in kinds().values() if facts.is_quick and facts.why_not() is None)
    return load_kind(next(others, kind.name))


def build_and_load(kind: EngineKind, model: ModelForms, request: EngineRequest) -> Engine:
    """Return an engine that is built here and now. Raises the EngineError of `kind`."""
    return kind.load(kind.build(model, request).data, model.spec, request)


def nodes_of_lone_layers(layers_of: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the nodes of each layer that shares none of them with another layer."""
    nodes_of: dict[str, list[str]] = {}
    for node, layers in layers_of.items():
        for layer in layers:
            nodes_of.setdefault(layer, []).append(node)
    return {layer: nodes for layer, nodes in nodes_of.items() if all(len(layers_of[node]) == 1 for node in nodes)}
