"""A plan from a model: the route's form of it is parsed, configured, built, and accounted for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from edge.engine.kind import EngineRequest, Int8Form, ModelForms, Plan
from edge.engine.tensorrt.binding import Abilities, MessageLog, TensorRtLibrary, is_out_of_memory, make_logger
from edge.engine.tensorrt.build.account import Coverage, implicit_coverage, inspected, qdq_coverage
from edge.engine.tensorrt.build.config import (
    Phases,
    TimingCache,
    dla_notes,
    make_config,
    make_monitor,
    require_dla,
    use_dla,
)
from edge.engine.tensorrt.build.network import (
    CALIBRATOR,
    give_cache,
    infos_of,
    keep_float,
    parsed_network,
    require_taken,
    set_ranges,
    set_shapes,
)
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader, TensorrtDevice, written_plan
from edge.engine.tensorrt.routes import ChosenRoute, Route, WantedRoute, choose_routes
from edge.errors import CalibrationError, EngineError, ModelError, OutOfMemoryError
from edge.model.graph import graph_from_bytes
from edge.model.qdq.faults import SYMMETRIC_HINT, qdq_faults
from edge.model.qdq.insert import QdqModel
from edge.reading import available_bytes
from edge.types import ModelSpec, Precision

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, ILogger, INetworkDefinition

__all__ = ["Source", "build_failure", "build_plan", "int8_forms", "serialized", "source_of"]

_OUT_OF_MEMORY = "lower engine.workspace_mib or batch.max_frames, stop what else uses the GPU, or add swap"


class NothingBuiltError(EngineError):
    """TensorRT has no implementation of what it was given this way; another may have one."""


def build_failure(what: str, log: MessageLog) -> EngineError:
    if is_out_of_memory(log.warnings()):
        return OutOfMemoryError(f"{what}: memory ran out while TensorRT built: {log.reason()}", hint=_OUT_OF_MEMORY)
    hint = "`edge-deploy doctor` names known-bad combinations"
    if log.skipped_tactics:
        hint = f"it left out {log.skipped_tactics} tactics for lack of memory: {_OUT_OF_MEMORY}"
    return NothingBuiltError(f"{what}: TensorRT built nothing: {log.reason()}", hint=hint)


def serialized(
    builder: Builder, network: INetworkDefinition, config: IBuilderConfig, log: MessageLog, name: str
) -> bytes:
    """Raises `EngineError` with TensorRT's reasons, if it builds nothing."""
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise build_failure(name, log)
    return bytes(built)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The parsed model and its scales: in a Q/DQ model, else beside the file, by tensor (largest absolute value)."""

    content: bytes
    qdq: QdqModel | None = None
    ranges: Mapping[str, float] = field(default_factory=dict)


def source_of(model: ModelForms, chosen: ChosenRoute, precision: Precision) -> Source:
    """Return the model as `chosen` wants it.

    Raises `CalibrationError` if there is no table, and the route needs one; `ModelError` if the model cannot be
    converted, or brings pairs that TensorRT does not take.
    """
    route = chosen.route
    if route.is_explicit:
        made = model.qdq_model(chosen.form)
        if model.spec.is_quantized:
            _require_symmetric(made.model, model.spec)
        return Source(content=made.model, qdq=made)
    if route.is_implicit:
        if model.ranges is None:
            raise CalibrationError(
                f"precision int8: {model.spec.name} is a float model; INT8 without a calibration table is never run",
                hint="name a table (edge-deploy calibrate), or use fp16",
            )
        return Source(content=model.float_model(), ranges=model.ranges)
    is_float16 = route is Route.FLOAT_STRONG and precision is Precision.FP16
    return Source(content=model.float_model(is_float16=is_float16))


def _require_symmetric(content: bytes, spec: ModelSpec) -> None:
    """Name what TensorRT does not take of a model's own pairs: its parsers tell the first node, or say nothing."""
    if faults := qdq_faults(graph_from_bytes(content, str(spec.path))):
        raise ModelError(f"{spec.path}: {'; '.join(fault.sentence for fault in faults)}", hint=SYMMETRIC_HINT)


_log = logging.getLogger(__name__)
_Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One build, and the objects of TensorRT that have to live as long: they hold no reference to each other."""

    library: TensorRtLibrary
    device: TensorrtDevice
    model: ModelForms
    request: EngineRequest
    chosen: ChosenRoute
    log: MessageLog
    logger: ILogger

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @property
    def options(self) -> Options:
        return _options(self.request)


def _options(request: EngineRequest) -> Options:
    assert isinstance(request.options, Options)
    return request.options


def build_plan(
    library: TensorRtLibrary,
    device: TensorrtDevice,
    model: ModelForms,
    request: EngineRequest,
    *,
    log: MessageLog | None = None,
    on_progress: _Progress = lambda phase, share: None,
) -> Plan:
    """Return a plan of `model` for `device`.

    Args:
        device: for which; TensorRT measures on it, and only TensorRT for RTX builds for one that is not here.
        model: in whatever form the route wants it.
        log: takes what TensorRT says; None: only this reads it.
        on_progress: takes a phase and the done share of it, 0 to 1; an exception from it ends the build.

    Raises `EngineError` if TensorRT cannot read or build it any way, or the machine lacks what is asked for;
    `CalibrationError` if there is no table, and INT8 is asked for.
    """
    first, *others = _ways(library.abilities, model, request)

    def built(way: ChosenRoute) -> Plan:
        kept = log or MessageLog()
        logger = make_logger(library, kept)
        job = _Job(library=library, device=device, model=model, request=request, chosen=way, log=kept, logger=logger)
        return _built_by(job, on_progress)

    try:
        return built(first)
    except NothingBuiltError as error:
        if not others:
            raise
        problem, hint = error.problem, error.hint
    _log.warning("TensorRT build failed, trying another way route=%s reason=%s", first.route.value, problem)
    lacking = f"{first.route.value} cannot be built here: {problem}"
    try:
        return built(replace(others[0], why=f"{others[0].why}; {lacking}"))
    except EngineError as error:
        raise EngineError(f"{lacking}; {others[0].route.value}: {error.problem}", hint=hint) from error


def _ways(abilities: Abilities, model: ModelForms, request: EngineRequest) -> tuple[ChosenRoute, ...]:
    options = _options(request)
    wanted = WantedRoute(
        precision=request.precision,
        forced=None if options.route == "auto" else Route(options.route),
        has_own_qdq=model.spec.is_quantized,
        is_for_dla=options.dla_core is not None,
        beyond_ranges=model.beyond_ranges,
        without_centres=model.has_centres and options.centres is False,
    )
    return choose_routes(wanted, abilities)


def int8_forms(abilities: Abilities, model: ModelForms, request: EngineRequest) -> tuple[Int8Form, ...]:
    """Return what `edge.engine.kind.RacingKind` says, of a library: Q/DQ pairs with and without centres, then scales.

    Raises `EngineError` if the library has no way to INT8.
    """
    options, forms = _options(request), []
    for route in (way.route for way in _ways(abilities, model, request)):
        both = route.is_explicit and model.has_centres and options.centres is None
        for centres in (True, False) if both else (options.centres,):
            name = f"{route.value} without centres" if centres is False and model.has_centres else route.value
            forms.append((name, msgspec.structs.replace(options, route=route.value, centres=centres)))
    if len(forms) == 1:
        return (Int8Form(name=forms[0][0], request=request),)
    return tuple(Int8Form(name=name, request=replace(request, options=chosen)) for name, chosen in forms)


def _built_by(job: _Job, on_progress: _Progress) -> Plan:
    _log.info("tensorrt route=%s reason=%s", job.chosen.route.value, job.chosen.why)
    header, content, report = _compiled(job, on_progress)
    # Only now that builder and network are gone: beside them the engine would lie in memory twice.
    account = inspected(job.library, job.logger, content, job.options.dla_core)
    if account is not None:
        report["account"] = account.as_json()
    if skipped := job.log.skipped_tactics:
        report["skipped_tactics"] = skipped
        _log.warning("tactics skipped for lack of memory model=%s count=%d", job.spec.name, skipped)
    return Plan(data=written_plan(header, content), report=report)


def _compiled(job: _Job, on_progress: _Progress) -> tuple[PlanHeader, bytes, dict[str, object]]:
    library, core, max_batch = job.library, job.options.dla_core, job.request.max_batch
    route, precision, free_bytes = job.chosen.route, job.request.precision, available_bytes()
    builder = library.trt.Builder(job.logger)
    if core is not None:
        require_dla(library, builder, core, precision=precision, route=route, max_batch=max_batch)
    on_progress("model", 0.0)
    source = source_of(job.model, job.chosen, precision)
    on_progress("model", 1.0)
    is_strong = route.is_strongly_typed
    network = parsed_network(
        library, builder, job.logger, source.content, name=job.spec.name, is_strongly_typed=is_strong
    )
    config = make_config(
        library, builder, job.device, job.options, route=route, precision=precision, free_bytes=free_bytes
    )
    if core is not None:
        use_dla(library, config, core)
    batch = set_shapes(builder, config, network, job.spec, max_batch=max_batch, is_fixed=core is not None)
    coverage, calibrator = _give_scales(job, config, network, source)
    notes = () if core is None else tuple(dla_notes(network, coverage))
    header = _header(job, network, batch)
    content = _serialized(job, builder, network, config, calibrator, on_progress)
    return header, content, _report(job, source, coverage, notes)


def _give_scales(
    job: _Job, config: IBuilderConfig, network: INetworkDefinition, source: Source
) -> tuple[Coverage | None, Any]:
    """Return what of the table reached the network, and the calibrator that hands over the rest, where there is one."""
    library, model, name = job.library, job.model, job.spec.name
    if source.qdq is not None:
        ranges = None if model.spec.is_quantized else model.ranges
        return qdq_coverage(library, network, source.qdq, ranges), None
    if not job.chosen.route.is_implicit:
        return None, None
    coverage = implicit_coverage(network, source.ranges)
    coverage.require_some(name)
    for left in keep_float(library, config, network, model.keep_float):
        _log.warning('layer to keep in float not found model=%s name="%s"', name, left)
    if job.chosen.route is Route.IMPLICIT_RANGES:
        set_ranges(network, source.ranges, name)
        return coverage, None
    return coverage, give_cache(library, config, model.calibration_cache(version=library.number, calibrator=CALIBRATOR))


def _serialized(
    job: _Job,
    builder: Builder,
    network: INetworkDefinition,
    config: IBuilderConfig,
    calibrator: Any,
    on_progress: _Progress,
) -> bytes:
    phases = Phases(on_progress)
    monitor = make_monitor(job.library, phases)
    if monitor is not None:
        config.progress_monitor = monitor
    else:
        on_progress("build", 0.0)
    cache = TimingCache(job.request.cache_folder, job.library, job.device, is_beside=job.request.is_beside)
    cache.give_to(config)
    try:
        content = serialized(builder, network, config, job.log, job.spec.name)
    except EngineError:
        if phases.failure is not None:
            raise phases.failure from None
        if calibrator is not None:  # a cache that was not taken is the reason of what failed behind it
            require_taken(calibrator, job.spec.name)
        raise
    if calibrator is not None:
        require_taken(calibrator, job.spec.name)
    cache.take_from(config)
    on_progress("build", 1.0)
    return content


def _header(job: _Job, network: INetworkDefinition, batch: int | None) -> PlanHeader:
    inputs, outputs = infos_of(network)
    return PlanHeader(
        library=job.library.name,
        version=job.library.version,
        compute_capability=job.device.compute_capability,
        device=job.device.name,
        precision=job.request.precision.value,
        route=job.chosen.route.value,
        max_batch=job.request.max_batch,
        batch=batch,
        inputs=inputs,
        outputs=outputs,
        dla_core=job.options.dla_core,
    )


def _report(job: _Job, source: Source, coverage: Coverage | None, notes: tuple[str, ...]) -> dict[str, object]:
    parts: dict[str, object] = {
        "route": job.chosen.route.value,
        "why": job.chosen.why,
        "library": f"{job.library.name} {job.library.version}",
        "device": job.device.name,
    }
    if source.qdq is not None and job.request.precision is Precision.INT8:
        parts["int8_mac_share"] = round(source.qdq.mac_share_int8, 5)
    if coverage is not None:
        parts["scales"] = coverage.as_json()
    if job.request.is_beside:
        parts["timed_beside_a_service"] = True
    if job.options.dla_core is not None:
        parts["dla"] = {"core": job.options.dla_core, "on_the_gpu": list(notes)}
    return parts
