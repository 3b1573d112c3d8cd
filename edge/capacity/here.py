"""This machine: which of the table it is and in which power mode, as it says itself; or as it is measured."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from edge.capacity.platform import Platform, platform_here
from edge.capacity.work import Work
from edge.config.pipeline import Pipeline
from edge.device.sensors import read_sensors
from edge.engine.cuda.jetson_modules import JetsonModule, jetson_module_of
from edge.engine.kind import EngineRequest, load_kind
from edge.engine.pipeline_model import open_model
from edge.engine.section import choose_engine, read_section
from edge.engine.select import build_and_load
from edge.errors import EngineError
from edge.protocols import Engine
from edge.quantize.account import accounts_of
from edge.quantize.forms import Forms
from edge.quantize.precision import precision_of
from edge.quantize.this_machine import cores_of, measured_here, precisions_here, require_processor
from edge.reading import read_file
from edge.roofline.machines import Machine, find_machine
from edge.types import Precision

__all__ = ["key_of", "machine_here", "measured_platform"]

_KIB = 1024
_MEASURED_S = 1.0  # of cores, together
_FEWEST_BATCHES = 3


def machine_here(root: Path = Path("/")) -> Machine | None:
    """Return the machine, uncapped where its power mode is not known; None: it is none of the table.

    Args:
        root: where its files lie.
    """
    board = _text(root / "proc/device-tree/model").strip("\0\n ")
    module = jetson_module_of(board or None, _memory_bytes(root))
    if module is None:
        return None
    machine = find_machine(key_of(module))
    name = (read_sensors(root).mode or "").partition(" ")[2]
    return dataclasses.replace(machine, mode_name=name) if name in machine.facts.modes else machine


def measured_platform(
    name: str, pipeline: Pipeline, work: Work, *, root: Path = Path("/"), on_round: Callable[[], None] = lambda: None
) -> Platform:
    """Return this machine, `this` or `this/CORES`, measured with the model of a pipeline in its precision.

    Raises:
        ConfigError: if it has not so many cores.
        EngineError: if no engine here can measure itself, it does not run on the processor, or the model does not run
            in this precision.
    """
    config, precision, kind = pipeline.config.model, work.model.precision, read_section(pipeline).kind
    require_processor(kind)
    cores, computed = cores_of(name, engine=kind), precisions_here(kind)
    if precision not in computed:
        words = " and ".join(one.value for one in computed)
        raise _not_measured(name, precision, f"engines of a processor compute in {words}")
    table = config.calibration if precision is Precision.INT8 and config.calibration is not None else None
    accounts = accounts_of(
        work.model.spec.path,
        table=None if table is None else pipeline.resolve(table),
        batch=work.model.spec.batch or work.most_frames,
        remainder=computed[0],
    )
    only = {one: account for one, account in accounts.by_precision.items() if one is precision}
    accounts = dataclasses.replace(accounts, by_precision=only)  # the other would take minutes, for nothing
    found = measured_here(accounts, cores=cores, engine=kind, on_round=on_round)
    if precision not in found.models:
        raise _not_measured(name, precision, found.why_not.get(precision, "the model has no such form"))
    model = found.models[precision]
    return platform_here(
        found.machine,
        frame_s=model.run_s / model.bound.account.batch,
        core_s=_core_s(pipeline, work),
        memory_bytes=_memory_bytes(root),
    )


def _not_measured(name: str, precision: Precision, why: str) -> EngineError:
    return EngineError(f"machine {name!r}: the model was not measured in {precision.value}: {why}")


def _core_s(pipeline: Pipeline, work: Work) -> float:
    """Return the time of cores that the engine takes for a frame: what others take of the machine does not count."""
    chosen, (file, spec) = choose_engine(pipeline), open_model(pipeline)
    forms = Forms(spec, precision_of(pipeline, spec, file.graph).table, file=file)
    request = EngineRequest(
        precision=work.model.precision,
        max_batch=work.most_frames,
        options=chosen.options,
        score_threshold=pipeline.config.model.score_threshold,
    )
    engine = build_and_load(load_kind(chosen.kind), forms, request)
    try:
        _infer(engine)  # the first one is slower
        spent_s, frames = 0.0, 0
        while spent_s < _MEASURED_S or frames < _FEWEST_BATCHES * engine.max_batch:
            begun_s = time.process_time()
            _infer(engine)
            spent_s, frames = spent_s + time.process_time() - begun_s, frames + engine.max_batch
        return spent_s / frames
    finally:
        engine.close()


def _infer(engine: Engine) -> None:
    engine.start(0, engine.max_batch)
    engine.wait(0)


def key_of(module: JetsonModule) -> str:
    """Return what the table calls a module."""
    return f"{module.name.lower().replace(' ', '-')}-{module.memory_gib}gb" + ("-super" if module.is_super else "")


def _memory_bytes(root: Path) -> int:
    pairs = (line.partition(":") for line in _text(root / "proc/meminfo").splitlines())
    found = {name: rest.split() for name, _, rest in pairs}
    words = found.get("MemTotal", [])
    return int(words[0]) * _KIB if words and words[0].isdigit() else 0


def _text(path: Path) -> str:
    try:
        return read_file(path, follows_links=True).decode("utf-8", "replace")
    except OSError:
        return ""
