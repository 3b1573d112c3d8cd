"""OpenVINO as a kind of engine. It compiles in seconds at every start, so a plan is the model that it compiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from edge.engine.averaging import Averaging
from edge.engine.kind import DoctorFinding, EngineKind, EngineRequest, LayerProfiler, ModelForms, Peak, Plan, QdqForm
from edge.engine.openvino.binding import name_and_version, require_precision, why_int8_in_float
from edge.engine.openvino.engine import OpenVinoActivations, OpenVinoEngine, Options
from edge.engine.openvino.facts import FACTS
from edge.errors import EngineError, ModelError
from edge.types import ModelSpec, Precision

__all__ = ["KIND"]

_EXACT = "this CPU sums INT8 exactly"


class _OpenVino:
    """`edge.engine.kind.EngineKind` on the CPU."""

    name = FACTS.name
    options_type: type[msgspec.Struct] = Options

    def build(
        self,
        model: ModelForms,
        request: EngineRequest,
        *,
        on_progress: Callable[[str, float], None] = lambda phase, share: None,
    ) -> Plan:
        """Return the model that is compiled at every start: with Q/DQ pairs for INT8, else as it is."""
        require_precision(request.precision)
        on_progress("model", 0.0)
        plan = _int8(model) if request.precision is Precision.INT8 else _float(model, request.precision)
        on_progress("model", 1.0)
        return plan

    def load(self, plan: bytes, spec: ModelSpec, request: EngineRequest) -> OpenVinoEngine:
        """The file of `spec` is not read."""
        options = request.options
        assert isinstance(options, Options)
        spec = dataclasses.replace(spec, is_quantized=request.precision is Precision.INT8)
        try:
            return OpenVinoEngine(
                spec,
                max_batch=request.max_batch,
                precision=request.precision,
                threads=1 if request.is_one_of_many else options.threads,
                content=plan,
            )
        except ModelError as error:  # the plan is a model, but whose fault it is, is another question
            raise EngineError(
                f"{spec.name}: the plan cannot be used: {error.problem}", hint="build it again"
            ) from error

    def activations(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> OpenVinoActivations:
        return OpenVinoActivations(spec, tensors, max_batch=max_batch, content=content)

    def observing(
        self,
        spec: ModelSpec,
        tensors: Sequence[str],
        *,
        largest_of: Collection[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> OpenVinoActivations:
        """Return an engine that gives out tensors, for the caller to count: they are in the CPU's memory already."""
        return OpenVinoActivations(spec, tensors, largest_of=tuple(largest_of), max_batch=max_batch, content=content)

    def averaging(
        self, spec: ModelSpec, tensors: Sequence[str], *, max_batch: int = 1, content: bytes | None = None
    ) -> Averaging:
        return Averaging(OpenVinoActivations(spec, tensors, max_batch=max_batch, content=content), tensors)

    def profiler(self, spec: ModelSpec, layers: Collection[str], *, content: bytes | None = None) -> LayerProfiler:
        from edge.engine.openvino.profile import OpenVinoLayerProfiler  # serving times no layer

        return OpenVinoLayerProfiler(spec, layers, content=content)

    def peaks(self) -> Iterator[Peak]:
        from edge.engine.openvino.profile import cpu_peaks  # nor does it measure peaks

        yield from cpu_peaks()

    def examine(self) -> Iterator[DoctorFinding]:
        if FACTS.why_not() is not None:
            return
        yield DoctorFinding(name=FACTS.name, is_there=True, detail=f"{name_and_version()} (the CPU engine)")
        why = why_int8_in_float()
        detail = f"computed in float, at its speed: {why}" if why else f"computed in INT8: {_EXACT}"
        yield DoctorFinding(name="int8 on the CPU", is_there=why is None, detail=detail)


def _int8(model: ModelForms) -> Plan:
    made = model.qdq_model(QdqForm(activations="uint8"))
    why = why_int8_in_float()
    return Plan(
        data=made.model,
        report={
            "route": "explicit Q/DQ" if why is None else "explicit Q/DQ, levels computed in float",
            "why": why or _EXACT,
            "int8_mac_share": round(made.mac_share_int8, 5),
        },
    )


def _float(model: ModelForms, precision: Precision) -> Plan:
    # The CPU's own fp16 is asked for when it compiles: the file stays as it is.
    return Plan(data=model.float_model(), report={"route": "float", "why": f"{precision.value} needs no scales"})


KIND: EngineKind = _OpenVino()
