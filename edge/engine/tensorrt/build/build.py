"""A plan from a model: the route's form of it is parsed, configured, built, and accounted for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.engine.kind import EngineRequest, ModelForms, Plan
from edge.engine.tensorrt.binding import TensorRtLibrary, make_logger
from edge.engine.tensorrt.build.account import PlanAccount
from edge.engine.tensorrt.build.config import make_config
from edge.engine.tensorrt.build.coverage import Coverage, implicit_coverage, qdq_coverage
from edge.engine.tensorrt.build.dla import dla_notes, require_dla, use_dla
from edge.engine.tensorrt.build.inspector import inspected
from edge.engine.tensorrt.build.keep_float import keep_float
from edge.engine.tensorrt.build.network import infos_of, parsed_network
from edge.engine.tensorrt.build.progress import Phases, make_monitor
from edge.engine.tensorrt.build.scales import CALIBRATOR, CacheAnswer, give_cache, set_ranges
from edge.engine.tensorrt.build.serialize import serialized
from edge.engine.tensorrt.build.shapes import set_shapes
from edge.engine.tensorrt.build.source import Source, source_of
from edge.engine.tensorrt.build.timing_cache import TimingCache
from edge.engine.tensorrt.device import TensorrtDevice
from edge.engine.tensorrt.log import MessageLog
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader, written_plan
from edge.engine.tensorrt.routes import ChosenRoute, Route, WantedRoute, choose_route
from edge.errors import EngineError
from edge.types import ModelSpec, Precision

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, ILogger, INetworkDefinition

__all__ = ["build_plan"]

_log = logging.getLogger(__name__)
_Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One build, and the objects of TensorRT that have to live as long: they hold no reference to each other."""

    library: TensorRtLibrary
    device: TensorrtDevice
    model: ModelForms
    request: EngineRequest
    options: Options
    chosen: ChosenRoute
    log: MessageLog
    logger: ILogger
    builder: Builder

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec


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
        library: that builds.
        device: for which; TensorRT measures on it, and only TensorRT for RTX builds for one that is not here.
        model: in whatever form the route wants it.
        request: what is asked for.
        log: takes what TensorRT says; None: nobody reads it but this.
        on_progress: is told a phase and how much of it is done, 0 to 1; what it raises ends the build.

    Raises:
        EngineError: if TensorRT cannot read or build it, or the machine lacks what is asked for.
        CalibrationError: if there is no table, and INT8 is asked for.
    """
    job = _job(library, device, model, request, log or MessageLog())
    _log.info("tensorrt route=%s reason=%s", job.chosen.route.value, job.chosen.why)
    _require_dla(job)
    on_progress("model", 0.0)
    source = source_of(model, job.chosen, request.precision)
    on_progress("model", 1.0)
    return _built(job, source, on_progress)


def _job(
    library: TensorRtLibrary, device: TensorrtDevice, model: ModelForms, request: EngineRequest, log: MessageLog
) -> _Job:
    options = request.options
    assert isinstance(options, Options)
    wanted = WantedRoute(
        precision=request.precision,
        forced=None if options.route == "auto" else Route(options.route),
        has_own_qdq=model.spec.is_quantized,
        is_for_dla=options.dla_core is not None,
        beyond_ranges=model.beyond_ranges,
    )
    logger = make_logger(library, log)
    return _Job(
        library=library,
        device=device,
        model=model,
        request=request,
        options=options,
        chosen=choose_route(wanted, library.abilities),
        log=log,
        logger=logger,
        builder=library.trt.Builder(logger),
    )


def _require_dla(job: _Job) -> None:
    if job.options.dla_core is not None:
        require_dla(
            job.library,
            job.builder,
            job.options.dla_core,
            precision=job.request.precision,
            route=job.chosen.route,
            max_batch=job.request.max_batch,
        )


def _built(job: _Job, source: Source, on_progress: _Progress) -> Plan:
    core, route = job.options.dla_core, job.chosen.route
    network = parsed_network(
        job.library,
        job.builder,
        job.logger,
        source.content,
        name=job.spec.name,
        is_strongly_typed=route.is_strongly_typed,
    )
    config = make_config(
        job.library, job.builder, job.device, job.options, route=route, precision=job.request.precision
    )
    if core is not None:
        use_dla(job.library, config, core)
    batch = set_shapes(
        job.builder, config, network, job.spec, max_batch=job.request.max_batch, is_fixed=core is not None
    )
    coverage, answer = _give_scales(job, config, network, source)
    notes = () if core is None else tuple(dla_notes(network, coverage))
    header = _header(job, network, batch)
    content = _serialized(job, network, config, answer, on_progress)
    account = inspected(job.library, job.logger, content, core)
    return Plan(data=written_plan(header, content), report=_report(job, source, coverage, notes, account))


def _give_scales(
    job: _Job, config: IBuilderConfig, network: INetworkDefinition, source: Source
) -> tuple[Coverage | None, CacheAnswer | None]:
    library, model, name = job.library, job.model, job.spec.name
    if source.qdq is not None:
        ranges = None if model.spec.is_quantized else model.ranges
        return qdq_coverage(library, network, source.qdq, ranges), None
    if not job.chosen.route.is_implicit:
        return None, None
    coverage = implicit_coverage(network, source.ranges)
    coverage.require_some(name)
    for left in keep_float(library, config, network, model.keep_float):
        _log.warning('not kept in float, no layer has its name: model=%s name="%s"', name, left)
    if job.chosen.route is Route.IMPLICIT_RANGES:
        set_ranges(network, source.ranges, name)
        return coverage, None
    return coverage, give_cache(library, config, model.calibration_cache(version=library.number, calibrator=CALIBRATOR))


def _serialized(
    job: _Job, network: INetworkDefinition, config: IBuilderConfig, answer: CacheAnswer | None, on_progress: _Progress
) -> bytes:
    phases = Phases(on_progress)
    monitor = make_monitor(job.library, phases)
    if monitor is not None:
        config.progress_monitor = monitor
    else:
        on_progress("build", 0.0)
    cache = TimingCache(job.request.cache_folder, job.library, job.device)
    cache.give_to(config)
    try:
        content = serialized(job.builder, network, config, job.log, job.spec.name)
    except EngineError:
        if phases.failure is not None:
            raise phases.failure from None
        if answer is not None:  # a cache that was not taken is the reason of what failed behind it
            answer.require_taken(job.spec.name)
        raise
    if answer is not None:
        answer.require_taken(job.spec.name)
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


def _report(
    job: _Job, source: Source, coverage: Coverage | None, notes: tuple[str, ...], account: PlanAccount | None
) -> dict[str, object]:
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
    if job.options.dla_core is not None:
        parts["dla"] = {"core": job.options.dla_core, "on_the_gpu": list(notes)}
    if account is not None:
        parts["account"] = account.as_json()
    return parts
